// The prompts of a run or the problems of an evaluation: searched, filtered and sorted; each with its responses.
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
const gain = (prompt) => (prompt.baseline === null ? null : passRate(prompt) - prompt.baseline);

const OF_RUNS = {
  newest: ["newest visit", (a, b) => last(b.visits.step) - last(a.visits.step)],
  unexpected: ["expected pass rate, lowest first", by(expected, 1)],
  expected: ["expected pass rate, highest first", by(expected, -1)],
  visits: ["visits, most first", (a, b) => b.visited - a.visited],
  exit: ["last exit", (a, b) => String(last(a.visits.exit_reason)).localeCompare(String(last(b.visits.exit_reason)))],
};
const OF_COMPARISONS = {
  worse: ["difference from the baseline, lowest first", by(gain, 1)],
  better: ["difference from the baseline, highest first", by(gain, -1)],
};
const OF_ALL = {
  hardest: ["pass rate, lowest first", by(passRate, 1)],
  easiest: ["pass rate, highest first", by(passRate, -1)],
};
const ofRun = report.prompts.some((prompt) => prompt.visits);
const ORDERS = {
  ...(ofRun ? OF_RUNS : { order: ["as they were asked", () => 0] }), ...OF_ALL,
  ...(report.prompts.some((prompt) => prompt.baseline != null) ? OF_COMPARISONS : {}),
};

// Which responses are looked for.
const FILTERS = {
  incorrect: ["incorrect", (row) => !(row.acc > report.threshold)],
  truncated: ["cut off at the limit", (row) => row.truncated],
  unanswered: ["no answer found", (row) => row.answer === ""],
};
const NAMES = ["index", "reward", "advantage", "tokens", "truncated", "text", "acc", "answer"];

for (const prompt of report.prompts) {
  for (const each of prompt.responses) each.rows = each.rows.map((row) => Object.fromEntries(NAMES.map((name, at) => [name, row[at]])));
}

// Whether a prompt has a response that is looked for; an evaluation counts those that are not shown, too.
function has(prompt, filter) {
  return prompt.counts ? prompt.counts[filter] > 0 : prompt.responses.some((each) => each.rows.some(FILTERS[filter][1]));
}

function found() {
  const words = browser.search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const [filter, exit, benchmark] = ["filter", "exit", "benchmark"].map((name) => browser[name]?.value);
  const chosen = report.prompts.filter((prompt) => {
    if (exit && last(prompt.visits.exit_reason) !== exit) return false;
    if (benchmark && prompt.benchmark !== benchmark) return false;
    if (filter && !has(prompt, filter)) return false;
    if (browser.only?.checked && !prompt.responses.length) return false;
    const text = `${prompt.question}\n${prompt.key}\n${prompt.answer ?? ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  return chosen.sort(ORDERS[browser.order.value][1]);
}

function showPrompts() {
  const chosen = found();
  const count = Math.min(browser.shown, chosen.length);
  browser.count.textContent = `${plural(chosen.length, ofRun ? "prompt" : "problem")}${chosen.length > count ? `, the first ${count} shown` : ""}`;
  const rows = chosen.slice(0, count).map(promptRow);
  browser.list.replaceChildren(...rows);
  browser.more.hidden = chosen.length <= count;
}

function promptRow(prompt) {
  const rate = passRate(prompt);
  const label = make("span", { class: "question", text: prompt.question.replace(/\s+/g, " ").slice(0, 160) });
  const facts = [rate === null ? "no response" : `pass rate ${rate.toFixed(3)} of ${plural(prompt.drawn, "response")}`];
  if (prompt.visits) {
    const { step, correct, drawn, exit_reason } = prompt.visits, belief = expected(prompt);
    if (prompt.visited !== prompt.drawn) facts[0] += ` in ${plural(prompt.visited, "visit")}`;
    facts.push(`step ${last(step)}: ${belief === null ? "" : `${belief.toFixed(3)} expected, `}${last(correct)} of ${last(drawn)} correct, ${last(exit_reason)}`);
    if (prompt.responses.length) facts.push("responses");
  } else {
    if (prompt.baseline !== null) facts.push(`baseline ${prompt.baseline.toFixed(3)}`);
    facts.push(...prompt.about);
  }
  const row = make("details", { class: "prompt" }, make("summary", {}, label, make("br"), make("span", { class: "soft", text: facts.join(" · ") })));
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
  if (prompt.visits) body.append(history(prompt));
  if (!prompt.responses.length) {
    const kept = `Its responses were not kept, or there was no room for them: of each step, those of ${plural(report.kept, "prompt")} are kept. The setting `;
    body.append(make("p", { class: "soft" }, kept, make("code", { text: "records.prompts_per_step" }), " says of how many."), stopped(prompt, prompt.visits.step.length - 1));
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
  const drawing = new Chart({ id: `history-${historyNumber++}`, title: single ? "Response at each visit: correct (1) or not (0)" : "Pass rate at each visit", about: "A visit is a step that sampled the prompt.", grid, lines, low: 0, high: 1 });
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

// The responses of one visit, those that are looked for alone; of an evaluation there is one, without a step.
function visit(prompt, recorded) {
  const filter = browser.filter.value;
  const rows = filter ? recorded.rows.filter(FILTERS[filter][1]) : recorded.rows;
  const correct = rows.filter((row) => row.acc > report.threshold);
  const incorrect = rows.filter((row) => !(row.acc > report.threshold));
  const sides = make("div", { class: "sides" }, side("Correct", correct), side("Incorrect", incorrect));
  const left = filter ? make("p", { class: "soft", text: `${rows.length} of ${plural(recorded.rows.length, "response")}: ${FILTERS[filter][0]}.` }) : null;
  if (!prompt.visits) return [...(recorded.note ? [make("p", { class: "soft", text: recorded.note })] : []), ...(left ? [left] : []), sides];
  const at = prompt.visits.step.indexOf(recorded.step);
  const said = at >= 0 ? stopped(prompt, at) : make("p", { text: `Step ${recorded.step}: ${correct.length} of ${rows.length} correct. Sampling ended because ${WHY[recorded.exit_reason] ?? recorded.exit_reason}.` });
  return [said, ...(left ? [left] : []), sides];
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
  const facts = [`draw ${row.index}`, `reward ${row.reward.toFixed(2)}`];
  if (ofRun) facts.push(row.advantage === null ? "not trained on" : `advantage ${row.advantage > 0 ? "+" : row.advantage < 0 ? "−" : ""}${Math.abs(row.advantage).toFixed(3)}`);
  if (row.tokens !== null) facts.push(plural(row.tokens, "token"));
  if (row.truncated) facts.push("cut off at the limit");
  const read = row.answer ? ["read as the answer: ", make("code", { text: row.answer })] : ["no answer found"];
  return make("article", { class: `response ${kind}` }, make("p", { class: "facts-line", text: facts.join(" · ") }), make("pre", { text: row.text }),
    row.answer === undefined || row.answer === null ? null : make("p", { class: "facts-line read" }, ...read));
}

function select(name, options, again) {
  return make("select", { id: `prompt-${name}`, onchange: again }, ...options.map(([value, text]) => make("option", { value, text })));
}

function addBrowser() {
  const place = document.getElementById("prompt-browser");
  const again = () => { browser.shown = PAGE; showPrompts(); };
  const any = ["", "any"];
  const benchmarks = [...new Set(report.prompts.map((prompt) => prompt.benchmark))];
  browser.search = make("input", { id: "prompt-search", type: "search", oninput: again });
  browser.order = select("order", Object.entries(ORDERS).map(([value, [text]]) => [value, text]), again);
  const filters = Object.entries(FILTERS).filter(([name]) => name !== "unanswered" || report.prompts.some((prompt) => prompt.counts && prompt.counts[name] !== null));
  browser.filter = select("filter", [any, ...filters.map(([value, [text]]) => [value, text])], again);
  const boxes = [["search", browser.search], ["sorted by", browser.order], ["with a response", browser.filter]];
  if (ofRun) {
    browser.exit = select("exit", [any, ...Object.entries(WHY).map(([value, text]) => [value, `${value}: ${text}`])], again);
    boxes.push(["last exit", browser.exit]);
    browser.only = make("input", { id: "prompt-only", type: "checkbox", onchange: again });
  } else if (benchmarks.length > 1) {
    browser.benchmark = select("benchmark", [any, ...benchmarks.map((name) => [name, name])], again);
    boxes.push(["benchmark", browser.benchmark]);
  }
  browser.count = make("p", { class: "soft", "aria-live": "polite", id: "prompt-count" });
  browser.list = make("div", { id: "prompt-list" });
  browser.more = make("button", { type: "button", id: "prompt-more", text: "Show more", onclick: () => { browser.shown += PAGE; showPrompts(); } });
  place.replaceChildren(
    make("div", { class: "controls" }, ...boxes.map(([text, control]) => make("label", {}, text, control)),
      browser.only ? make("label", { class: "check" }, browser.only, "with responses") : null),
    browser.count, browser.list, browser.more, make("p", { class: "soft", text: report.note }));
  showPrompts();
}

if (document.getElementById("prompt-browser")) addBrowser();
