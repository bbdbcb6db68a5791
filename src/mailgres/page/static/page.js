// Live figures and the keyboard. Every page can be read without this file.
"use strict";

(() => {
  const { base } = document.body.dataset;
  const away = document.getElementById("away");

  // Times in the reader's own zone.
  const clock = (root) => {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      element.title = at.toISOString();
      const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
      const day = at.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" });
      element.textContent = "clock" in element.dataset ? time : `${day}, ${time}`;
    }
  };
  clock(document);

  // The figures say how old they are, by the clock of this page: it starts when they arrive.
  let arrived = Date.now();
  const tell = () => {
    const age = document.getElementById("age");
    if (!age) return;
    const seconds = Math.round((Date.now() - arrived) / 1000);
    age.textContent = seconds < 4 ? "" : `They are ${seconds} s old.`;
    age.classList.toggle("is-old", seconds >= 10);
  };
  setInterval(tell, 1000);

  // Live parts are asked for again, unless the window is hidden. A part that has the focus stays as it is.
  const live = document.querySelector("[data-live]");
  const EVERY = 2000;
  let waiting = 0;
  const isUsed = () => live.contains(document.activeElement) || live.querySelector("details[open]");
  const refresh = async () => {
    clearTimeout(waiting);
    if (document.hidden) return;
    try {
      const answer = await fetch(base + live.dataset.live, { credentials: "same-origin" });
      if (answer.status === 403) {
        location.reload();
        return;
      }
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").body;
        clock(fresh);
        if (!isUsed()) live.replaceChildren(...fresh.childNodes);
        arrived = Date.now();
      }
      away.hidden = answer.ok;
    } catch {
      away.hidden = false;
    }
    tell();
    waiting = setTimeout(refresh, EVERY);
  };
  if (live) {
    waiting = setTimeout(refresh, EVERY);
    document.addEventListener("visibilitychange", () => {
      clearTimeout(waiting);
      if (!document.hidden) refresh();
    });
  }

  // The keyboard: j and k go through the emails, / goes to the filter, q and e are the queue and the emails.
  const step = (by) => {
    const rows = [...document.querySelectorAll("a.row")];
    if (!rows.length) return;
    const next = rows[Math.min(Math.max(rows.indexOf(document.activeElement) + by, 0), rows.length - 1)];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  };
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    "/": () => document.querySelector(".filter input")?.focus(),
    q: () => location.assign(base),
    e: () => location.assign(`${base}emails`),
  };
  document.addEventListener("keydown", (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
    if (event.key === "Escape" && typing) document.activeElement.blur();
    const action = keys[event.key];
    if (!action || typing) return;
    event.preventDefault();
    action();
  });
})();
