/* Renews the parts of a page that are marked with data-pulse-live, without loading the page again.

   It asks for the page's own address, at most once in five seconds, or each second where a part is marked with
   data-pulse-often, and not while the page is hidden. If nothing has changed the server answers 304. Only nodes that
   differ are replaced, so the focus, the scroll position and what was opened stay. Without this script the page is renewed by loading it again. */
(() => {
  "use strict";

  const [EVERY, OFTEN] = [5000, 1000]; // milliseconds between two requests
  const PATIENCE = 20000; // for one answer
  let version = null;
  let lastAsked = performance.now();
  let timer = null;

  const regionsOf = (root) => root.querySelectorAll("[data-pulse-live]");

  /* A form with input is not replaced. */
  function isInUse(region) {
    if (region.dataset.pulseLive !== "forms") return false;
    if (region.contains(document.activeElement)) return true;
    return [...region.querySelectorAll("input, textarea")].some((field) => field.value !== field.defaultValue);
  }

  function renewAttributes(old, fresh) {
    for (const { name } of [...old.attributes]) {
      const isOpened = name === "open" && old.nodeName === "DETAILS";
      if (!fresh.hasAttribute(name) && !isOpened) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      const isClosed = name === "open" && old.nodeName === "DETAILS";
      if (old.getAttribute(name) !== value && !isClosed) old.setAttribute(name, value);
    }
  }

  function renew(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
      old.replaceWith(document.importNode(fresh, true));
    } else if (old.nodeType !== Node.ELEMENT_NODE) {
      old.data = fresh.data;
    } else {
      renewAttributes(old, fresh);
      const [mine, theirs] = [[...old.childNodes], [...fresh.childNodes]];
      theirs.forEach((node, place) => {
        if (place < mine.length) renew(mine[place], node);
        else old.append(document.importNode(node, true));
      });
      mine.slice(theirs.length).forEach((node) => node.remove());
    }
  }

  function show(page) {
    const [mine, theirs] = [[...regionsOf(document)], [...regionsOf(page)]];
    if (mine.length !== theirs.length) {
      location.reload();
      return;
    }
    mine.forEach((region, place) => {
      if (!isInUse(region)) renew(region, theirs[place]);
    });
  }

  function tellStale(isStale) {
    document.querySelectorAll("[data-pulse-stale]").forEach((note) => { note.hidden = !isStale; });
  }

  async function ask() {
    lastAsked = performance.now();
    const headers = version === null ? {} : { "If-None-Match": version };
    try {
      const answer = await fetch(location.href, {
        headers, credentials: "same-origin", redirect: "error", signal: AbortSignal.timeout(PATIENCE),
      });
      if (answer.status !== 304) {
        if (!answer.ok) throw new Error(String(answer.status));
        show(new DOMParser().parseFromString(await answer.text(), "text/html"));
        version = answer.headers.get("ETag");
      }
      tellStale(false);
    } catch {
      tellStale(true);
    }
    plan();
  }

  function plan() {
    clearTimeout(timer);
    const pause = document.querySelector("[data-pulse-often]") ? OFTEN : EVERY;
    if (!document.hidden) timer = setTimeout(ask, Math.max(0, lastAsked + pause - performance.now()));
  }

  document.addEventListener("visibilitychange", plan);
  plan();
})();
