"use strict";
// Reads the embedded tables, opens what a link points at, filters pairs. Data only ever becomes text nodes or a Blob.
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  const cell = (value) => {
    if (value === null || value === undefined) return "";
    const text = String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };

  const csv = (columns) => {
    const rows = columns.length === 0 ? 0 : "rows" in columns[0] ? columns[0].rows : columns[0].values.length;
    const lines = [columns.map((column) => cell(column.name)).join(",")];
    for (let row = 0; row < rows; row += 1) {
      lines.push(columns.map((column) => cell("values" in column ? column.values[row] : column.constant)).join(","));
    }
    return `${lines.join("\r\n")}\r\n`;
  };

  for (const button of document.querySelectorAll("button[data-csv]")) {
    button.addEventListener("click", () => {
      const tables = JSON.parse(document.getElementById("data").textContent);
      const blob = new Blob([csv(tables[button.dataset.csv])], { type: "text/csv;charset=utf-8" });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = button.dataset.file;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
  }

  for (const mark of document.querySelectorAll(".mark[data-href]")) {
    mark.addEventListener("click", () => { location.hash = mark.dataset.href; });
  }

  const reveal = () => {
    const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    if (target === null) return;
    for (let node = target; node !== null; node = node.parentElement) {
      if (node.tagName === "DETAILS") node.open = true;
    }
    const own = target.querySelector(":scope > details");
    if (own !== null) own.open = true;
    target.scrollIntoView({ block: "start" });
  };
  window.addEventListener("hashchange", reveal);
  reveal();

  const filter = document.getElementById("pair-filter");
  const flagged = document.getElementById("pair-flagged");
  const shown = document.getElementById("pair-shown");
  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let visible = 0;
    for (const item of document.querySelectorAll(".pairs > li[data-text]")) {
      const fits = words.every((word) => item.dataset.text.includes(word));
      item.hidden = !fits || (flagged.checked && !("flag" in item.dataset));
      if (!item.hidden) visible += 1;
    }
    shown.textContent = `${visible} shown`;
    if (words.length > 0 || flagged.checked) {
      for (const group of document.querySelectorAll("#requests details.block")) {
        group.open = group.querySelector(".pairs > li[data-text]:not([hidden])") !== null;
      }
    }
  };
  if (filter !== null) {
    filter.addEventListener("input", apply);
    flagged.addEventListener("change", apply);
  }

  const links = new Map([...document.querySelectorAll("nav.toc a")].map((link) => [link.hash.slice(1), link]));
  const sections = [...document.querySelectorAll("main > section[id]")];
  let queued = false;
  const mark = () => {
    queued = false;
    const above = sections.filter((section) => section.getBoundingClientRect().top < 64);
    const current = above.length > 0 ? above[above.length - 1] : sections[0];
    for (const [id, link] of links) {
      if (id === current.id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  };
  window.addEventListener("scroll", () => {
    if (!queued) requestAnimationFrame(mark);
    queued = true;
  }, { passive: true });
  mark();
})();
