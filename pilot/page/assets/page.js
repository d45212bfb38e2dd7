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

  // A stopped server and a dead network keep the connection open. The server sends a frame at least once per interval,
  // so the content is outdated if none has arrived for two intervals.
  const outdated = 2 * document.body.dataset.interval;
  let received, trouble = "";
  const arrived = () => {
    received = performance.now();
    trouble = "";
    document.body.classList.remove("outdated");
    say("up", "live");
  };
  const watch = () => {
    const age = Math.floor((performance.now() - received) / 1000);
    if (age < outdated) return;
    document.body.classList.add("outdated");
    say("down", `${trouble}no update for ${age} s`);
  };

  const keep = {
    // A running bar is not restarted. A renewed validity has another id.
    beforeNodeMorphed: (before, after) =>
      !(before.classList?.contains("validity") && before.id === after.id),
    // Opened details remain open.
    beforeAttributeUpdated: (attribute) => attribute !== "open",
  };

  // With hundreds of elections, most do not change between frames. Rows and lanes with unchanged text are not parsed.
  // The class of a bar has the elapsed share when it was sent, so it is ignored.
  const parts = /<(tr|div class="lane") id="([^"]*)"[^]*?<\/(?:tr|div)>/g;
  const sent = new Map();
  const comparable = (text) => text.replace(/ over-\d+"/g, '"');
  for (const part of document.querySelectorAll("main tr[id], main div.lane[id]")) sent.set(part.id, comparable(part.outerHTML));
  const thinned = (html) => {
    const met = new Set();
    const thin = html.replace(parts, (text, element, id) => {
      const kept = comparable(text), same = sent.get(id) === kept && !met.has(id);
      met.add(id);
      sent.set(id, kept);
      return same ? `<${element} id="${id}" data-same></${element.slice(0, 3).trim()}>` : text;
    });
    for (const id of sent.keys()) if (!met.has(id)) sent.delete(id);
    return thin;
  };

  // Equal elements are kept, elements without links or details are replaced, and idiomorph merges the rest.
  const containers = "main, section, table, tbody, tr, .timeline, .lane";
  const whole = (after) => { // restores omitted elements for idiomorph
    for (const same of after.querySelectorAll("[data-same]")) same.replaceWith(document.getElementById(same.id).cloneNode(true));
    return after;
  };
  const shape = (element) => element.cloneNode(false);
  const alike = (before, after) =>
    before.tagName === after.tagName && before.id === after.id && before.children.length === after.children.length &&
    [...before.children].every((child, i) => child.tagName === after.children[i].tagName && child.id === after.children[i].id);

  const merge = (before, after) => {
    if ("same" in after.dataset || before.isEqualNode(after)) return;
    if (before.matches(containers) && alike(before, after)) {
      if (!after.className) before.removeAttribute("class");
      else if (before.className !== after.className) before.className = after.className;
      const others = [...after.children];
      [...before.children].forEach((child, i) => merge(child, others[i]));
    } else if (before.matches(".strip, td, .changes, .legend, .axis") && !before.querySelector("a, summary")) {
      before.replaceWith(after);
    } else if (shape(before).isEqualNode(shape(after))) { // idiomorph need not compare the siblings
      Idiomorph.morph(before, whole(after).innerHTML, { morphStyle: "innerHTML", ignoreActiveValue: true, callbacks: keep });
    } else {
      Idiomorph.morph(before, whole(after), { morphStyle: "outerHTML", ignoreActiveValue: true, callbacks: keep });
    }
  };

  const draw = () => {
    const html = pending;
    pending = undefined;
    if (html === undefined) return;
    const next = new DOMParser().parseFromString(thinned(html), "text/html").querySelector("main");
    for (const bar of next.querySelectorAll(".validity")) { // keep running bars
      const running = document.getElementById(bar.id);
      if (running) bar.replaceWith(running.cloneNode(true));
    }
    try {
      merge(document.querySelector("main"), next);
    } catch (error) {
      sent.clear(); // the drawn state is unknown
      throw error;
    }
  };

  const follow = () => {
    source?.close();
    const mine = (source = new EventSource(document.body.dataset.stream + location.search));
    mine.addEventListener("main", (event) => {
      if (mine !== source) return;
      arrived();
      if (pending === undefined) requestAnimationFrame(draw);
      pending = event.data;
    });
    mine.addEventListener("error", () => {
      if (mine !== source) return;
      trouble = "disconnected; ";
      say("down", "disconnected; retrying");
      watch();
      if (mine.readyState === EventSource.CLOSED) setTimeout(() => mine === source && follow(), 3000);
    });
  };

  // Links to other views of this page and its filter restart the stream. The page is not reloaded.
  const go = (query) => {
    history.pushState(null, "", query);
    follow();
  };
  document.addEventListener("submit", (event) => {
    event.preventDefault();
    const query = new URLSearchParams(new FormData(event.target));
    for (const name of ["name", "revision", "state"]) if (!query.get(name)) query.delete(name);
    go("?" + query);
  });
  document.addEventListener("click", (event) => {
    const command = event.target.closest("code.command");
    if (!command || !navigator.clipboard) return;
    navigator.clipboard.writeText(command.textContent).then(() => {
      command.classList.add("copied");
      setTimeout(() => command.classList.remove("copied"), 1500);
    }, () => {}); // the click has selected it
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("main a[href^='?']");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(link.getAttribute("href"));
  });
  addEventListener("popstate", follow);
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (event) => event.persisted && follow());
  received = performance.now();
  setInterval(watch, 1000);
  follow();
})();
