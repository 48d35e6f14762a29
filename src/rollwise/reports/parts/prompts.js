// The prompts of a run: searched and sorted; each with its visits and its responses.
const PAGE = 25;
const FEW = 6;
const WHY = {
  satisfied: "the exit rule was met",
  exhausted: "its draws were spent before the exit rule was met",
  futile: "it was given up: what the rule asks for had become unlikely",
};
const browser = { shown: PAGE, open: new Map() };

function last(list) { return list[list.length - 1]; }

// Of what is shown, ascending or descending; prompts without it come last.
function by(value, sign) {
  return (a, b) => {
    const [one, other] = [value(a), value(b)];
    return one === null || other === null ? (one === null) - (other === null) : sign * (one - other);
  };
}

const passRate = (prompt) => (prompt.drawn ? prompt.correct / prompt.drawn : null);
const expected = (prompt) => last(prompt.visits.expected);

const ORDERS = {
  newest: ["newest visit", (a, b) => last(b.visits.step) - last(a.visits.step)],
  hardest: ["pass rate, lowest first", by(passRate, 1)],
  easiest: ["pass rate, highest first", by(passRate, -1)],
  unexpected: ["expected pass rate, lowest first", by(expected, 1)],
  expected: ["expected pass rate, highest first", by(expected, -1)],
  visits: ["visits, most first", (a, b) => b.visited - a.visited],
  exit: ["last exit", (a, b) => String(last(a.visits.exit_reason)).localeCompare(String(last(b.visits.exit_reason)))],
};

function plural(count, noun) { return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`; }

function found() {
  const words = browser.search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const exit = browser.exit.value;
  const chosen = report.prompts.filter((prompt) => {
    if (exit && last(prompt.visits.exit_reason) !== exit) return false;
    if (browser.only.checked && !prompt.responses.length) return false;
    const text = `${prompt.question}\n${prompt.key}\n${prompt.answer ?? ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  return chosen.sort(ORDERS[browser.order.value][1]);
}

function showPrompts() {
  const chosen = found();
  const count = Math.min(browser.shown, chosen.length);
  browser.count.textContent = `${plural(chosen.length, "prompt")}${chosen.length > count ? `, the first ${count} shown` : ""}`;
  const rows = chosen.slice(0, count).map(promptRow);
  browser.list.replaceChildren(...rows);
  browser.more.hidden = chosen.length <= count;
}

function promptRow(prompt) {
  const { step, correct, drawn, exit_reason } = prompt.visits;
  const [rate, belief] = [passRate(prompt), expected(prompt)];
  const label = make("span", { class: "question", text: prompt.question.replace(/\s+/g, " ").slice(0, 160) });
  const facts = make("span", { class: "soft" },
    rate === null ? "no response" : `${trimmedPercent(rate)} of ${plural(prompt.drawn, "response")} correct`,
    prompt.visited === prompt.drawn ? "" : ` in ${plural(prompt.visited, "visit")}`,
    ` · step ${last(step)}: ${belief === null ? "" : `${trimmedPercent(belief)} expected, `}${last(correct)} of ${last(drawn)} correct, ${last(exit_reason)}`,
    prompt.responses.length ? " · responses" : "");
  const row = make("details", { class: "prompt" }, make("summary", {}, label, make("br"), facts));
  row.addEventListener("toggle", () => {
    if (row.open) openPrompt(row, prompt);
    else browser.open.delete(prompt.key);
  });
  if (browser.open.has(prompt.key)) row.open = true;
  return row;
}

function openPrompt(row, prompt) {
  if (row.children.length > 1) return;
  const step = browser.open.get(prompt.key);
  browser.open.set(prompt.key, step);
  const body = make("div", { class: "opened" });
  body.append(make("pre", { class: "text", text: prompt.question }));
  if (prompt.answer !== null) body.append(make("p", {}, "Reference answer: ", make("code", { text: prompt.answer })));
  row.append(body);
  body.append(history(prompt));
  if (!prompt.responses.length) {
    body.append(make("p", { class: "soft", text: `Its responses were not kept, or not shown: records.prompts_per_step says of how many prompts of a step they are.` }), stopped(prompt, prompt.visits.step.length - 1));
    return;
  }
  const place = make("div");
  const show = (at) => { browser.open.set(prompt.key, prompt.responses[at].step); place.replaceChildren(...visit(prompt, prompt.responses[at])); };
  const at = Math.max(0, prompt.responses.findIndex((each) => each.step === step));
  if (prompt.responses.length > 1) {
    const choice = make("select", { onchange: (event) => show(Number(event.target.value)) },
      ...prompt.responses.map((each, number) => make("option", { value: number, text: `step ${each.step}` })));
    choice.value = String(at);
    body.append(make("div", { class: "controls" }, make("label", {}, "responses of", choice)));
  }
  body.append(place);
  show(at);
}

// Pass rates over the run, and the belief beforehand with one standard deviation around it.
function history(prompt) {
  const { step, correct, drawn, expected, strength } = prompt.visits;
  const rates = step.map((_, at) => (drawn[at] ? correct[at] / drawn[at] : null));
  const spread = expected.map((rate, at) => (rate === null ? null : Math.sqrt((rate * (1 - rate)) / (strength[at] + 1))));
  const single = drawn.every((count) => count <= 1);
  const lines = [{ label: single ? "reward" : "pass rate", values: rates, points: true, colour: 0, style: single ? "points" : "" }];
  if (expected.some((rate) => rate !== null)) {
    lines.push({
      label: "expected beforehand, ± its standard deviation", values: expected, colour: 1, style: "dashed", points: true,
      low: expected.map((rate, at) => (rate === null ? null : Math.max(0, rate - spread[at]))),
      high: expected.map((rate, at) => (rate === null ? null : Math.min(1, rate + spread[at]))),
    });
  }
  const grid = `visits of ${prompt.key}`;
  report.grids[grid] = { step };
  const drawing = new Chart({ id: `history-${historyNumber++}`, title: single ? "Response at each visit: correct (100 %) or not" : "Pass rate at each visit", grid, lines, unit: "share", low: 0, high: 1 });
  requestAnimationFrame(() => drawing.resize());
  histories.add(drawing);
  return drawing.figure;
}

let historyNumber = 0;
const histories = new Set();

function stopped(prompt, at) {
  const { step, correct, drawn, exit_reason } = prompt.visits;
  return make("p", {}, `Step ${step[at]}: ${correct[at]} of ${drawn[at]} correct. Sampling ended because ${WHY[exit_reason[at]] ?? exit_reason[at]}${exit_reason[at] === "satisfied" && report.exit ? `: ${report.exit}` : ""}.`);
}

function visit(prompt, recorded) {
  const at = prompt.visits.step.indexOf(recorded.step);
  const rows = recorded.rows.map(([index, reward, advantage, tokens, truncated, text]) => ({ index, reward, advantage, tokens, truncated, text }));
  const correct = rows.filter((row) => row.reward > report.threshold);
  const incorrect = rows.filter((row) => !(row.reward > report.threshold));
  const parts = at >= 0 ? [stopped(prompt, at)] : [make("p", { text: `Step ${recorded.step}: ${correct.length} of ${rows.length} correct. Sampling ended because ${WHY[recorded.exit_reason] ?? recorded.exit_reason}.` })];
  parts.push(make("div", { class: "sides" }, side("Correct", correct), side("Incorrect", incorrect)));
  return parts;
}

function side(title, rows) {
  const list = make("div");
  const cards = rows.map((row) => card(row, title.toLowerCase()));
  list.append(...cards.slice(0, FEW));
  const box = make("section", { "aria-label": `${title} responses` }, make("h3", { text: `${title}: ${rows.length}` }), list);
  if (rows.length > FEW) {
    box.append(make("button", { type: "button", text: `Show all ${rows.length}`, onclick: (event) => { list.append(...cards.slice(FEW)); event.target.remove(); } }));
  }
  return box;
}

function card(row, kind) {
  const signed = row.advantage === null ? "not trained on" : `advantage ${row.advantage > 0 ? "+" : row.advantage < 0 ? "−" : ""}${Math.abs(row.advantage).toFixed(3)}`;
  const facts = [`draw ${row.index}`, `reward ${row.reward.toFixed(2)}`, signed];
  if (row.tokens !== null) facts.push(plural(row.tokens, "token"));
  if (row.truncated) facts.push("cut at the limit");
  return make("article", { class: `response ${kind}` }, make("p", { class: "facts-line", text: facts.join(" · ") }), make("pre", { text: row.text }));
}

function addBrowser() {
  const place = document.getElementById("prompt-browser");
  const again = () => { browser.shown = PAGE; showPrompts(); };
  browser.search = make("input", { id: "prompt-search", type: "search", oninput: again });
  browser.order = make("select", { id: "prompt-order", onchange: again }, ...Object.entries(ORDERS).map(([value, [text]]) => make("option", { value, text })));
  browser.exit = make("select", { id: "prompt-exit", onchange: again }, make("option", { value: "", text: "any" }), ...Object.keys(WHY).map((value) => make("option", { value, text: value })));
  browser.only = make("input", { id: "prompt-only", type: "checkbox", onchange: again });
  browser.count = make("p", { class: "soft", "aria-live": "polite", id: "prompt-count" });
  browser.list = make("div", { id: "prompt-list" });
  browser.more = make("button", { type: "button", id: "prompt-more", text: "Show more", onclick: () => { browser.shown += PAGE; showPrompts(); } });
  place.replaceChildren(
    make("div", { class: "controls" },
      make("label", {}, "search", browser.search), make("label", {}, "sorted by", browser.order), make("label", {}, "last exit", browser.exit),
      make("label", { class: "check" }, browser.only, "with responses")),
    browser.count, browser.list, browser.more, make("p", { class: "soft", text: report.note }));
  showPrompts();
}

if (document.getElementById("prompt-browser")) addBrowser();
