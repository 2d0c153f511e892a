// Adds to pages that work without it: suggestions, what happens as it happens, the progress of jobs, times by the reader's clock.
"use strict";

const get = async (url) => {
  const answer = await fetch(url, { headers: { Accept: "text/html, application/json" }, redirect: "error" });
  if (!answer.ok) throw new Error(answer.status);
  return answer;
};
const parsed = async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html");

// Times stand in UTC.
const localTimes = (within) => {
  for (const time of within.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (!time.title && !Number.isNaN(at.getTime())) {
      time.title = time.textContent;
      time.textContent = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    }
  }
};

const suggest = (input) => {
  const list = document.getElementById(input.getAttribute("list"));
  let waiting = 0;
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const text = input.value;
      if (text.trim().length < 2) return;
      try {
        const values = await (await get(input.dataset.suggest + "?" + new URLSearchParams({ q: text }))).json();
        if (input.value !== text) return;
        list.replaceChildren(...values.map((value) => Object.assign(document.createElement("option"), { value })));
      } catch { /* the page works without */ }
    }, 150);
  });
};

const mostShown = 500;

const follow = (list) => {
  document.querySelector("[data-live-note]")?.removeAttribute("hidden");
  const look = async () => {
    if (document.hidden) { // nobody looks, and a session that nobody uses is to end
      setTimeout(look, 2000);
      return;
    }
    try {
      const page = await parsed(await get("/console/history?" + new URLSearchParams({ since: list.dataset.since, kind: list.dataset.kind })));
      const news = page.querySelector("ol");
      localTimes(news);
      if (news.children.length) list.prepend(...news.children);
      while (list.children.length > mostShown) list.lastElementChild.remove();
      list.dataset.since = news.dataset.since;
      setTimeout(look, 2000);
    } catch { setTimeout(look, 10000); }
  };
  setTimeout(look, 2000);
};

// A job that runs is shown anew until it has ended.
const watch = (job) => {
  const look = async () => {
    try {
      const fresh = (await parsed(await get(location.href))).querySelector("[data-job]");
      if (!fresh) return;
      const focused = job.contains(document.activeElement);
      if (!focused || !fresh.hasAttribute("data-running")) {
        job.replaceWith(fresh);
        localTimes(fresh);
        job = fresh;
        if (focused) document.getElementById("main").focus();
      }
      if (job.hasAttribute("data-running")) setTimeout(look, 1000);
    } catch { setTimeout(look, 5000); }
  };
  if (job.hasAttribute("data-running")) setTimeout(look, 1000);
};

const copyable = (code) => {
  if (!navigator.clipboard) return;
  const button = Object.assign(document.createElement("button"), { type: "button", className: "second", textContent: "Copy" });
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  });
  code.after(" ", button);
};

localTimes(document);
document.querySelectorAll("[data-suggest]").forEach(suggest);
document.querySelectorAll("[data-since]").forEach(follow);
document.querySelectorAll("[data-job]").forEach(watch);
document.querySelectorAll("[data-copy]").forEach(copyable);
