// Follows the page's stream of server-sent events: each brings the whole <main>.
"use strict";
(() => {
  const live = document.getElementById("live");
  let source, pending;

  const say = (state, text) => {
    live.hidden = false;
    live.className = state;
    if (live.textContent !== text) live.textContent = text;
  };

  const keep = {
    // A bar that runs already is not begun anew; another cover is another id.
    beforeNodeMorphed: (before, after) =>
      !(before.classList?.contains("cover") && before.id === after.id),
    // What the reader opened stays open.
    beforeAttributeUpdated: (attribute) => attribute !== "open",
  };

  const draw = () => {
    const html = pending;
    pending = undefined;
    if (html === undefined) return;
    Idiomorph.morph(document.querySelector("main"), html, { morphStyle: "outerHTML", callbacks: keep });
  };

  const follow = () => {
    source?.close();
    const mine = (source = new EventSource(document.body.dataset.stream + location.search));
    mine.addEventListener("open", () => say("up", "live"));
    mine.addEventListener("main", (event) => {
      if (mine !== source) return;
      if (pending === undefined) requestAnimationFrame(draw);
      pending = event.data;
    });
    mine.addEventListener("error", () => {
      if (mine !== source) return;
      say("down", "not connected, trying again");
      if (mine.readyState === EventSource.CLOSED) setTimeout(() => mine === source && follow(), 3000);
    });
  };

  // Links to other views of this page change what the stream sends; nothing is loaded anew.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("main a[href^='?']");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    history.pushState(null, "", link.getAttribute("href"));
    follow();
  });
  addEventListener("popstate", follow);
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (event) => event.persisted && follow());
  follow();
})();
