// This script adds suggestions, live events, the progress of jobs, and times in the reader's time
// zone. All pages work without it.
"use strict";

const get = async (url) => {
  const answer = await fetch(url, { headers: { Accept: "text/html, application/json" }, redirect: "error" });
  if (!answer.ok) throw new Error(answer.status);
  return answer;
};
const parsed = async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html");

// localTimes shows times, which pages contain in UTC, in the reader's time zone.
const localTimes = (within) => {
  for (const time of within.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (!time.title && !Number.isNaN(at.getTime())) {
      time.title = time.textContent;
      time.textContent = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    }
  }
};

// suggest completes what is typed into the input.
const suggest = (input) => {
  const list = document.getElementById(input.getAttribute("list"));
  let timer = 0;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const text = input.value;
      if (text.trim().length < 2) return;
      try {
        const values = await (await get(input.dataset.suggest + "?" + new URLSearchParams({ q: text }))).json();
        if (input.value !== text) return;
        list.replaceChildren(...values.map((value) => Object.assign(document.createElement("option"), { value })));
      } catch { /* the page works without suggestions */ }
    }, 150);
  });
};

const maxShown = 500;

// follow adds new events to the list as they happen.
const follow = (list) => {
  document.querySelector("[data-live-note]")?.removeAttribute("hidden");
  const poll = async () => {
    if (document.hidden) { // do not keep the session of a hidden page alive
      setTimeout(poll, 2000);
      return;
    }
    try {
      const page = await parsed(await get("/console/history?" + new URLSearchParams({ since: list.dataset.since, kind: list.dataset.kind })));
      const news = page.querySelector("ol");
      localTimes(news);
      if (news.children.length) list.prepend(...news.children);
      while (list.children.length > maxShown) list.lastElementChild.remove();
      list.dataset.since = news.dataset.since;
      setTimeout(poll, 2000);
    } catch { setTimeout(poll, 10000); }
  };
  setTimeout(poll, 2000);
};

// watch refreshes the job on the page until it has ended.
const watch = (job) => {
  const poll = async () => {
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
      if (job.hasAttribute("data-running")) setTimeout(poll, 1000);
    } catch { setTimeout(poll, 5000); }
  };
  if (job.hasAttribute("data-running")) setTimeout(poll, 1000);
};

// copyable adds a button that copies the text of the element.
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

// A browser may show a page as it was before. A form for a job would then lead to the job that it
// has started. Other pages keep what was typed.
addEventListener("pageshow", (event) => {
  if (event.persisted && document.querySelector("input[name=job]")) location.reload();
});
