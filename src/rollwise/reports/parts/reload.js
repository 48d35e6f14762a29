// Reloads the page of a run that is under way, unless something in it is open, searched for or zoomed.
function isRead() {
  return document.querySelector("details[open]") || document.getElementById("prompt-search")?.value || view.low !== null;
}

setInterval(() => { if (!isRead()) location.reload(); }, 1000 * report.reload);
