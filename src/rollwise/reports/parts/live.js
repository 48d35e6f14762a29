// Asks the server that this page came from whether the run has gone on, and shows what is new.
const LOOK_MS = 3000;
const live = { tag: null, status: document.getElementById("live-status") };

function renew(page) {
  const fresh = JSON.parse(page.getElementById("data").textContent);
  report.charts = fresh.charts;
  report.grids = { ...report.grids, ...fresh.grids };
  report.note = fresh.note;
  for (const id of ["summary", "findings", "heldout", "ledger", "remarks"]) {
    document.getElementById(id).replaceChildren(...page.getElementById(id).childNodes);
  }
  if (!controls) addControls();
  showCharts();
  const text = JSON.stringify(fresh.prompts);
  if (text !== browser.text) {
    browser.text = text;
    report.prompts = fresh.prompts;
    browser.note.textContent = report.note;
    showPrompts();
  }
}

async function look() {
  try {
    const answer = await fetch("/", { cache: "no-store", headers: live.tag ? { "If-None-Match": live.tag } : {} });
    if (answer.status === 200) {
      live.tag = answer.headers.get("ETag");
      renew(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }
    live.status.textContent = "This page follows the run.";
  } catch (error) {
    live.status.textContent = `The server does not answer (${error.message}): the run has ended, or it was stopped. This is the last state.`;
  }
  setTimeout(look, LOOK_MS);
}

setTimeout(look, LOOK_MS);
