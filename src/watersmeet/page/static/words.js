// Elements and words: all of a document becomes text, never markup.
"use strict";
const words = (function () {
  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    for (const child of children) if (child !== null && child !== undefined) element.append(child);
    return element;
  }

  function make(tag, attributes, ...children) {
    return fill(document.createElement(tag), attributes, children);
  }

  function draw(tag, attributes, ...children) {
    return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  }

  const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 }).format;
  const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 }).format;

  function moment(seconds) {
    const at = new Date(seconds * 1000);
    return isNaN(at) ? String(seconds) : at.toISOString().slice(0, 19).replace("T", " ");
  }

  function lasting(seconds) {
    const size = Math.abs(seconds);
    if (size >= 172800) return fine(seconds / 86400) + " d";
    if (size >= 7200) return fine(seconds / 3600) + " h";
    if (size >= 120) return fine(seconds / 60) + " min";
    if (size >= 1 || size === 0) return fine(seconds) + " s";
    return fine(seconds * 1000) + " ms";
  }

  function sized(bytes) {
    const units = ["B", "KB", "MB", "GB", "TB", "PB"];
    let at = 0;
    while (Math.abs(bytes) >= 1000 && at < units.length - 1) { bytes /= 1000; at += 1; }
    return fine(bytes) + " " + units[at];
  }

  const SHOWN = {
    rows: plain, integer: plain, rate: (value) => fine(value) + " rows/s", bytes: sized,
    seconds: lasting, time: (us) => moment(us / 1e6),
  };

  function shown(kind, value) {
    return value === null || value === undefined ? "–" : value === "end" ? "ended" : SHOWN[kind](value);
  }

  function percent(part, whole) {
    return whole ? fine(100 * part / whole) + " %" : "–";
  }

  function table(names, rows, numbersFrom) {
    const head = make("tr", {}, ...names.map((name, n) => make("th", { scope: "col", class: n >= numbersFrom ? "number" : "" }, name)));
    const body = rows.map((row) => make("tr", {}, ...row.map((cell, n) => make(n ? "td" : "th", n ? { class: n >= numbersFrom ? "number" : "" } : { scope: "row" }, cell))));
    const inside = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": names.join(", ") }, inside);
  }

  return { make, draw, plain, moment, lasting, shown, percent, table };
})();
