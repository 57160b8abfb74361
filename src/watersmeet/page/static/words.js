// Elements, and values as people read them: all of a document becomes text, never markup.
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
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 6 }).format;
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format;

  // A count: exact as long as it can be read at a glance.
  function counted(value) { return Math.abs(value) < 1e7 ? plain(value) : compact(value); }

  function rate(value) { return (Math.abs(value) < 100 ? fine : counted)(value); }

  function moment(seconds) {
    const at = new Date(seconds * 1000);
    return isNaN(at) ? String(seconds) : at.toISOString().replace(/^\+0*|\..*Z$|Z$/g, "").replace("T", " ");
  }

  // Without the year, where there is little room.
  function brief(seconds) { return moment(seconds).replace(/^-?\d+-/, ""); }

  // In two units, without one that is zero: 2 min 5 s.
  function lasting(seconds) {
    const size = Math.abs(seconds), sign = seconds < 0 ? "-" : "";
    if (size < 1 && size > 0) return fine(seconds * 1000) + " ms";
    if (size < 59.95) return fine(seconds) + " s";
    const [unit, name, below, lesser] = size < 3599.5 ? [60, "min", 1, "s"] : size < 86370 ? [3600, "h", 60, "min"] : [86400, "d", 3600, "h"];
    const parts = Math.round(size / below), rest = parts % (unit / below);
    return sign + plain(Math.floor(parts / (unit / below))) + " " + name + (rest ? " " + rest + " " + lesser : "");
  }

  function sized(bytes) {
    const units = ["B", "KB", "MB", "GB", "TB", "PB"];
    let at = 0;
    while (Math.abs(bytes) >= 999.5 && at < units.length - 1) { bytes /= 1000; at += 1; }
    return fine(bytes) + " " + units[at];
  }

  const SHOWN = {
    rows: counted, integer: plain, rate: (value) => rate(value) + " rows/s", bytes: sized,
    seconds: lasting, time: (us) => moment(us / 1e6),
  };
  const EXACT = {
    rows: plain, integer: plain, rate: (value) => whole(Math.round(value * 1000) / 1000) + " rows/s", bytes: (value) => plain(value) + " bytes",
    seconds: (value) => whole(value) + " s", time: (us) => moment(us / 1e6) + (us % 1e6 ? "." + String(1e6 + us % 1e6).slice(1) : "") + " UTC",
  };

  function text(of, kind, value) {
    return value === null || value === undefined ? "–" : value === "end" ? "ended" : of[kind](value);
  }

  function shown(kind, value) { return text(SHOWN, kind, value); }

  function exact(kind, value) { return text(EXACT, kind, value); }

  // A value, with all its digits when it is pointed at.
  function figure(kind, value) {
    const short = shown(kind, value), long = exact(kind, value);
    return short === long ? short : make("span", { title: long }, short);
  }

  function percent(part, of) {
    const value = 100 * part / of;
    if (!of) return "–";
    return (value > 0 && value < 0.1 ? "< 0.1" : (Math.round(value * 10) / 10).toLocaleString("en")) + " %";
  }

  // ``numbersFrom``: the first column of numbers.
  function table(names, rows, numbersFrom = Infinity) {
    const of = (n) => ({ class: n >= numbersFrom ? "number" : "" });
    const head = make("tr", {}, ...names.map((name, n) => make("th", { scope: "col", ...of(n) }, name)));
    const body = rows.map((row) => make("tr", {}, ...row.map((cell, n) => make(n ? "td" : "th", n ? of(n) : { scope: "row" }, cell))));
    const inside = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": names.join(", ") }, inside);
  }

  const pen = document.createElement("canvas").getContext("2d");

  // Pixels that a text takes in drawings.
  function width(of) {
    pen.font = '12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
    return pen.measureText(of).width;
  }

  // As much of a text as has room.
  function fitting(of, room) {
    if (width(of) <= room) return of;
    const letters = [...of];
    while (letters.length && width(letters.join("") + "…") > room) letters.pop();
    return letters.join("") + "…";
  }

  return { make, draw, plain, moment, brief, lasting, shown, exact, figure, percent, table, width, fitting, rate, counted };
})();
