(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");
  const all = (query, within = document) => [...within.querySelectorAll(query)];
  const card = (at) => document.getElementById(at);
  const links = (at) => all(`.tree a[data-at="${CSS.escape(at)}"]`);
  const narrow = matchMedia("(max-width: 44rem)");

  // "L" is the parent of "LR", and "root" that of "L"; each of several runs and each tree of a forest
  // has a prefix, as "t2-LR" or "r1-t2-LR".
  const parts = (at) => {
    const found = /^((?:r\d+-)?(?:t\d+-)?)(.*)$/.exec(at);
    return [found[1], found[2]];
  };
  const parent = (at) => {
    const [prefix, path] = parts(at);
    return path === "root" ? null : prefix + (path.slice(0, -1) || "root");
  };
  const child = (at, side) => {
    const [prefix, path] = parts(at);
    return prefix + (path === "root" ? side : path + side);
  };
  const sibling = (at) => {
    const [prefix, path] = parts(at);
    if (path === "root") return null;
    return prefix + path.slice(0, -1) + (path.endsWith("L") ? "R" : "L");
  };

  // The sheet on which a node or leaf is shown; a closed branch has a sheet of its own.
  const sheetOf = (at) => {
    const own = document.getElementById(`sheet-${at}`);
    if (own) return own;
    const drawn = links(at);
    return drawn.length ? drawn[0].closest(".sheet") : null;
  };

  const select = (at, { focus = false, reveal = false, record = true } = {}) => {
    const selected = card(at);
    if (!selected || !selected.classList.contains("card")) return false;
    const explorer = selected.closest(".explorer");
    const member = selected.closest("details.member");
    if (member && record) member.open = true;
    for (const one of all(".card", explorer)) one.hidden = one !== selected;
    const sheet = sheetOf(at);
    if (sheet) for (const one of all(".sheet", explorer)) one.hidden = one !== sheet;
    for (const one of all("[aria-current]", explorer)) one.removeAttribute("aria-current");
    for (const one of links(at)) one.setAttribute("aria-current", "true");
    const path = new Set();
    for (let step = at; step; step = parent(step)) path.add(step);
    for (const one of all(".link", explorer)) one.classList.toggle("path", path.has(one.dataset.to));
    const spoken = explorer.querySelector(".spoken");
    if (record && spoken && links(at).length) spoken.textContent = links(at)[0].getAttribute("aria-label");
    if (record) history.replaceState(null, "", `#${at}`);
    if (focus) {
      const drawn = links(at).find((one) => one.getClientRects().length);
      if (drawn) drawn.focus({ preventScroll: true });
    }
    if (reveal) {
      const box = (narrow.matches ? selected : explorer).getBoundingClientRect();
      if (box.top < 0 || box.top > innerHeight * 0.6) {
        (narrow.matches ? selected : explorer).scrollIntoView({ block: "start" });
      }
    }
    return true;
  };

  for (const explorer of all(".explorer")) {
    const first = explorer.querySelector(".card");
    if (first) select(first.id, { record: false });
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-at]");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const inTree = link.closest(".tree");
    if (select(link.dataset.at, { focus: Boolean(inTree), reveal: !inTree || narrow.matches })) {
      event.preventDefault();
    }
  });

  document.addEventListener("keydown", (event) => {
    const link = event.target.closest ? event.target.closest(".tree a") : null;
    if (!link || event.altKey || event.ctrlKey || event.metaKey) return;
    const at = link.dataset.at;
    const goal = {
      ArrowUp: () => parent(at),
      ArrowDown: () => child(at, "L"),
      ArrowLeft: () => (at.endsWith("R") ? sibling(at) : parent(at)),
      ArrowRight: () => (at.endsWith("L") ? sibling(at) : child(at, "R")),
      " ": () => at,
    }[event.key];
    if (!goal) return;
    const to = goal();
    if (to && select(to, { focus: true })) event.preventDefault();
  });

  const follow = () => select(decodeURIComponent(location.hash.slice(1)), { reveal: true });
  addEventListener("hashchange", follow);
  if (location.hash) follow();

  // Trees of nearly the same score: hide those that use unwanted columns, show the chosen one.
  for (const list of all(".near")) {
    const [rows, boxes] = [all("tbody tr", list), all("[type=checkbox]", list)];
    const radio = (row) => row.querySelector("input");
    const choose = () => {
      const chosen = rows.find((row) => radio(row).checked);
      for (const one of all(".near-tree", list)) one.hidden = !chosen || one.id !== radio(chosen).value;
    };
    const filter = () => {
      const unwanted = boxes.filter((one) => one.checked);
      for (const row of rows) {
        const uses = new Set(row.dataset.uses.split(" "));
        row.hidden = unwanted.some((one) => uses.has(one.value));
        if (row.hidden) radio(row).checked = false;
      }
      const left = rows.filter((row) => !row.hidden);
      if (left.length && !left.some((row) => radio(row).checked)) radio(left[0]).checked = true;
      const names = unwanted.map((one) => one.parentElement.textContent.trim()).join(", ");
      list.querySelector(".filtered").textContent = names
        && `${left.length} of ${rows.length} trees do not use ${names}.`;
      choose();
    };
    list.addEventListener("change", filter);
    filter();
  }

  // Contents: mark the section in view.
  const marks = new Map(all(".contents a").map((one) => [one.hash.slice(1), one]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const one of marks.values()) one.removeAttribute("aria-current");
      marks.get(entry.target.id)?.setAttribute("aria-current", "location");
    }
  }, { rootMargin: "-15% 0px -75% 0px" });
  for (const name of marks.keys()) seen.observe(document.getElementById(name));

  for (const button of all("[data-copy]")) {
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy).textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
})();
