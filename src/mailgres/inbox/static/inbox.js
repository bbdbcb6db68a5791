// Live updates and the keyboard. Every page works without this file.
"use strict";

(() => {
  const { base, state, selected } = document.body.dataset;

  // Times in the reader's own zone.
  const today = new Date().toDateString();
  const clock = (root) => {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
      const day = at.toLocaleDateString([], { day: "numeric", month: "short" });
      const isToday = at.toDateString() === today;
      element.textContent = isToday ? time : "long" in element.dataset ? `${day}, ${time}` : day;
      element.title = at.toLocaleString();
    }
  };
  clock(document);

  // When something changed, the page is loaded again and its live parts are replaced. The frame of
  // an email and what somebody types stay as they are.
  let loading = false;
  let again = false;
  const refresh = async () => {
    if (loading) {
      again = true;
      return;
    }
    loading = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (answer.ok) replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      else if (answer.status === 404) location.replace(base);
      else if (answer.status === 403) location.reload();
    } catch {
      // The stream says so when the server is back.
    } finally {
      loading = false;
      if (again) {
        again = false;
        refresh();
      }
    }
  };
  const replace = (page) => {
    const [shown, now] = [document, page].map((each) => each.getElementById("email")?.dataset.captured);
    if (shown !== now) {
      location.reload();
      return;
    }
    const focused = document.activeElement?.getAttribute?.("href");
    for (const old of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(old.id);
      if (!fresh || fresh.isEqualNode(old) || old.querySelector("details[open]")) continue;
      clock(fresh);
      const seen = new Set(Array.from(old.querySelectorAll("li[id]"), (each) => each.id));
      for (const each of fresh.querySelectorAll("li[id]")) {
        if (!seen.has(each.id)) each.classList.add("is-new");
      }
      old.replaceWith(document.adoptNode(fresh));
    }
    if (focused && document.activeElement === document.body) {
      document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
    }
  };

  const away = document.getElementById("away");
  const watch = (known) => {
    const address = new URLSearchParams({ state: known, id: selected });
    const stream = new EventSource(`${base}events?${address}`);
    stream.addEventListener("changed", () => {
      away.hidden = true;
      refresh();
    });
    stream.addEventListener("away", () => {
      away.hidden = false;
    });
    stream.addEventListener("error", () => {
      if (stream.readyState !== EventSource.CLOSED) return;
      setTimeout(() => watch(""), 3000);
    });
    addEventListener("pagehide", () => stream.close());
  };
  if (state) watch(state);

  // Width and colours of the preview change without loading the page. Other colours get another
  // frame: a frame that loads a second address would add a step to the history.
  const colour = (scheme) => {
    const frame = document.getElementById("frame");
    if (frame.className === scheme) return;
    const fresh = frame.cloneNode();
    fresh.className = scheme;
    fresh.setAttribute("src", frame.getAttribute("src").replace(/scheme=\w+/, `scheme=${scheme}`));
    frame.replaceWith(fresh);
  };
  const mark = (link, isChosen) => {
    if (isChosen) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-width], a[data-scheme]");
    if (!link || event.metaKey || event.ctrlKey) return;
    event.preventDefault();
    const chosen = new URL(link.href).searchParams;
    const [width, scheme] = [chosen.get("width"), chosen.get("scheme")];
    colour(scheme);
    document.querySelector(".stage").className = `stage ${width} ${scheme}`;
    history.replaceState(null, "", link.href);
    for (const each of document.querySelectorAll("a[data-width]")) {
      each.href = `?view=html&width=${each.dataset.width}&scheme=${scheme}`;
      mark(each, each.dataset.width === width);
    }
    for (const each of document.querySelectorAll("a[data-scheme]")) {
      each.href = `?view=html&width=${width}&scheme=${each.dataset.scheme}`;
      mark(each, each.dataset.scheme === scheme);
    }
  });

  // The keyboard: j and k go through the list, / searches, Escape goes back.
  const step = (by) => {
    const links = [...document.querySelectorAll("a.email")];
    if (!links.length) return;
    const focused = links.indexOf(document.activeElement);
    const current = focused >= 0 ? focused : links.findIndex((each) => each.ariaCurrent === "page");
    const next = links[Math.min(Math.max(current + by, 0), links.length - 1)];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  };
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    "/": () => document.getElementById("search")?.focus(),
    Escape: () => {
      if (document.activeElement?.id === "search") document.activeElement.blur();
      else if (document.body.classList.contains("is-message")) location.assign(base);
    },
  };
  document.addEventListener("keydown", (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
    const action = keys[event.key];
    if (!action || (typing && event.key !== "Escape")) return;
    event.preventDefault();
    action();
  });

  // A search starts while it is typed, in the list.
  const field = document.getElementById("search");
  let waiting = 0;
  field?.addEventListener("input", () => {
    if (!document.body.classList.contains("is-list")) return;
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const address = field.value ? `?q=${encodeURIComponent(field.value)}` : location.pathname;
      history.replaceState(null, "", address);
      refresh();
    }, 150);
  });
})();
