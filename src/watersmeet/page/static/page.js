// Draws a document: that in the page, or one that is asked for beside it and grows. All of it becomes text,
// never markup.
"use strict";
(function () {
  const COLOURS = 8, MOST_POINTS = 3000;
  let doc;

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    for (const child of children) if (child !== null && child !== undefined) element.append(child);
    return element;
  }

  const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

  function moment(seconds) {
    const at = new Date(seconds * 1000);
    return isNaN(at) ? String(seconds) : at.toISOString().slice(0, 19).replace("T", " ");
  }

  function lasting(seconds) {
    const size = Math.abs(seconds);
    if (size >= 172800) return fine.format(seconds / 86400) + " d";
    if (size >= 7200) return fine.format(seconds / 3600) + " h";
    if (size >= 120) return fine.format(seconds / 60) + " min";
    if (size >= 1 || size === 0) return fine.format(seconds) + " s";
    return fine.format(seconds * 1000) + " ms";
  }

  function sized(bytes) {
    const units = ["B", "KB", "MB", "GB", "TB", "PB"];
    let at = 0;
    while (Math.abs(bytes) >= 1000 && at < units.length - 1) { bytes /= 1000; at += 1; }
    return fine.format(bytes) + " " + units[at];
  }

  const SHOWN = {
    rows: plain.format, integer: plain.format, rate: (value) => fine.format(value) + "/s", bytes: sized,
    seconds: lasting, time: (us) => moment(us / 1e6),
  };

  function shown(kind, value) {
    return value === null || value === undefined ? "–" : SHOWN[kind](value);
  }

  function table(names, rows, numbersFrom) {
    const head = make("tr", {}, ...names.map((name, n) => make("th", { scope: "col", class: n >= numbersFrom ? "number" : "" }, name)));
    const body = rows.map((row) => make("tr", {}, ...row.map((cell, n) => make(n ? "td" : "th", n ? { class: n >= numbersFrom ? "number" : "" } : { scope: "row" }, cell))));
    const inside = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": names.join(", ") }, inside);
  }

  // Series on one axis of time, with a gap where a run began and nothing was known for a while.
  function aligned(series) {
    const every = new Set();
    for (const one of series) for (const at of one.at) every.add(at);
    const ticks = [...every].sort((a, b) => a - b);
    const times = [], starts = doc.runs.map((run) => run.started);
    let run = 0;
    for (const at of ticks) {
      while (run < starts.length && starts[run] <= at) {
        if (times.length) times.push((times[times.length - 1] + at) / 2);
        run += 1;
      }
      times.push(at);
    }
    const known = new Set(ticks);
    return [times, ...series.map((one) => {
      const values = new Map(one.at.map((at, n) => [at, one.values[n]]));
      return times.map((at) => (values.has(at) ? values.get(at) : known.has(at) ? undefined : null));
    })];
  }

  function colour(n) {
    return getComputedStyle(document.documentElement).getPropertyValue("--s" + (n % COLOURS)).trim();
  }

  function ink(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  const drawn = new Map(); // key of a chart -> the chart, its drawing, and its element

  // Clock times (UTC), as far apart as they are: a day has its date, a minute no seconds.
  function clocks(u, splits) {
    const apart = splits.length > 1 ? splits[1] - splits[0] : 60;
    let day = "";
    return splits.map((at) => {
      const text = moment(at), date = text.slice(5, 10), clock = text.slice(11, apart < 60 ? 19 : 16);
      const shown = apart >= 86400 ? text.slice(0, 10) : date === day ? clock : clock + "\n" + text.slice(0, 10);
      day = date;
      return shown;
    });
  }

  function plot(chart, place) {
    const axis = { stroke: () => ink("--faint"), grid: { stroke: () => ink("--line"), width: 1 }, ticks: { stroke: () => ink("--line") } };
    const wide = (values) => 16 + 8 * Math.max(2, ...values.map((value) => (value || "").length));
    const options = {
      width: Math.max(240, place.clientWidth), height: 220, tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      legend: { show: false }, cursor: { y: false },
      scales: { y: { range: (u, low, high) => (chart.kind === "time" || chart.kind === "integer") ? (low === high ? [low - 1, high + 1] : [low, high]) : [Math.min(0, low), high > 0 ? high * 1.05 : 1] } },
      axes: [{ ...axis, values: clocks, size: 44 }, { ...axis, size: (u, values) => (values ? wide(values) : 60), values: (u, splits) => splits.map((value) => shown(chart.kind, value)) }],
      series: [{}, ...chart.series.map((one, n) => ({ label: one.name, stroke: () => colour(n), width: 1.5, points: { show: one.at.length < 60, size: 5 }, spanGaps: false }))],
    };
    const drawing = new uPlot(options, aligned(chart.series), place);
    drawn.get(chart.key).drawing = drawing;
    new ResizeObserver(() => {
      const width = Math.max(240, place.clientWidth);
      if (width !== drawing.width) drawing.setSize({ width, height: 220 });
    }).observe(place);
  }

  function reckoned(chart) {
    return table(["line", "least", "most", "last"], chart.series.map((one) => {
      const values = one.values.filter((value) => value !== null);
      const least = values.reduce((a, b) => Math.min(a, b), Infinity), most = values.reduce((a, b) => Math.max(a, b), -Infinity);
      return [one.name, ...[least, most, values[values.length - 1]].map((value) => shown(chart.kind, value))];
    }), 1);
  }

  function figure(chart) {
    const place = make("div", { "aria-hidden": "true" });
    const legend = make("ul", { class: "legend" }, ...chart.series.map((one, n) => {
      const mark = make("span", { "aria-hidden": "true" });
      mark.style.background = "var(--s" + (n % COLOURS) + ")";
      return make("li", {}, mark, one.name);
    }));
    const numbers = make("details", {}, make("summary", {}, "In numbers"));
    numbers.addEventListener("toggle", () => {
      if (numbers.open) numbers.replaceChildren(numbers.firstChild, reckoned(chart));
    });
    const whole = make("figure", { id: "chart-" + chart.key }, make("figcaption", {}, chart.title), place, legend, numbers);
    drawn.set(chart.key, { chart, whole, numbers, drawing: null });
    requestAnimationFrame(() => plot(chart, place));
    return whole;
  }

  // A section of the page, made when it first has something to show.
  function section(id, title, ...children) {
    const there = document.getElementById(id);
    if (there) {
      there.parentNode.replaceChildren(there, ...children);
    } else if (children.length) {
      document.getElementById("main").append(make("section", { "aria-labelledby": id }, make("h2", { id }, title), ...children));
      document.querySelector("#nav ul").append(make("li", {}, make("a", { href: "#" + id }, title)));
    }
  }

  function fact(name, value) {
    return make("span", {}, name + " ", make("b", {}, value));
  }

  function account() {
    const places = [...new Set(doc.inputs.flatMap((one) => Object.keys(one.places)))];
    const rows = [["in", ...doc.inputs.map((one) => plain.format(one.in))],
      ...places.map((place) => [place, ...doc.inputs.map((one) => plain.format(one.places[place] || 0))]),
      ["adds up", ...doc.inputs.map((one) => {
        const rest = one.in - Object.values(one.places).reduce((a, b) => a + b, 0);
        return rest === 0 ? "yes" : make("span", { class: "bad" }, "NO: " + plain.format(rest) + " rows unaccounted");
      })]];
    return table(["rows", ...doc.inputs.map((one) => one.name)], rows, 1);
  }

  function late() {
    const parts = [];
    for (const one of doc.inputs) {
      for (const [column, buckets] of Object.entries(one.late)) {
        const most = Math.max(...Object.values(buckets));
        const bars = make("div", { class: "bars" });
        for (const [bucket, rows] of Object.entries(buckets)) {
          const bar = make("div", { "aria-hidden": "true" });
          bar.style.width = (100 * rows / most) + "%";
          bars.append(make("span", {}, bucket), bar, make("span", {}, plain.format(rows)));
        }
        parts.push(make("figure", {}, make("figcaption", {}, one.name + ": rows by how late they were, of " + column), bars));
      }
    }
    return parts;
  }

  function head() {
    const first = doc.runs[0], last = doc.runs[doc.runs.length - 1];
    const rows = doc.inputs.reduce((sum, one) => sum + one.in, 0);
    document.getElementById("head").replaceChildren(make("h1", {}, doc.title), make("div", { class: "facts" },
      fact("status", doc.status), fact("ticks", plain.format(doc.ticks)), fact("rows in", plain.format(rows)),
      first ? fact("since", moment(first.started) + " UTC") : "",
      last && last.ended ? fact("until", moment(last.ended) + " UTC") : ""),
      last && last.error ? make("pre", { class: "bad", tabindex: "0" }, last.error) : "",
      ...doc.problems.map((problem) => make("p", { class: "bad" }, problem)));
  }

  function sections() {
    head();
    if (doc.inputs.length) section("account", "Account of rows", account());
    section("late", "Late rows", ...late());
    if (doc.told.length) {
      section("told", "What was told", table(["when (UTC)", "tick", "of", "what", "words"],
        doc.told.map((one) => [moment(one.at), plain.format(one.tick), one.of, one.what, one.text]), 9));
    }
    section("runs", "Runs", table(["started (UTC)", "ended", "how", "version", "machine", "told"],
      doc.runs.map((run) => [moment(run.started), run.ended ? moment(run.ended) : "–", run.how, run.version, run.machine, [run.error, ...run.notices].filter(Boolean).join("\n")]), 9));
    section("plan", "Plan", make("pre", { tabindex: "0" }, doc.plan));
    const settings = Object.entries(doc.settings);
    if (settings.length) section("settings", "Settings", table(["setting", "value"], settings, 9));
  }

  function charts() {
    section("over-time", "Over time", make("div", { class: "charts" }, ...doc.charts.map(figure)));
  }

  function begin(whole) {
    doc = whole;
    document.getElementById("nav").replaceChildren(make("ul", {}));
    charts();
    sections();
  }

  // What came since: points to be put behind those that are there, and all else as it is now.
  function grow(more) {
    let same = true;
    for (const chart of more.charts) {
      const known = drawn.get(chart.key);
      if (!known) { doc.charts.push(chart); same = false; continue; }
      for (const one of chart.series) {
        const series = known.chart.series.find((other) => other.name === one.name);
        if (!series) { known.chart.series.push(one); same = false; continue; }
        series.at = series.at.concat(one.at).slice(-MOST_POINTS);
        series.values = series.values.concat(one.values).slice(-MOST_POINTS);
      }
    }
    const told = doc.told.concat(more.told).slice(-MOST_POINTS);
    doc = { ...doc, ...more, charts: doc.charts, told, inputs: more.inputs.length ? more.inputs : doc.inputs, ticks: Math.max(doc.ticks, more.ticks) };
    sections();
    if (!same) {
      for (const one of drawn.values()) if (one.drawing) one.drawing.destroy();
      drawn.clear();
      charts();
      return;
    }
    for (const one of drawn.values()) {
      if (one.drawing) one.drawing.setData(aligned(one.chart.series));
      if (one.numbers.open) one.numbers.replaceChildren(one.numbers.firstChild, reckoned(one.chart));
    }
  }

  function live() {
    fetch("document.json").then(async (answer) => {
      if (!answer.ok) throw await answer.text();
      return answer.json();
    }).then((whole) => {
      begin(whole);
      const news = new EventSource("events?after=" + whole.until);
      news.addEventListener("more", (event) => grow(JSON.parse(event.data)));
      news.addEventListener("problem", (event) => { doc.problems = [JSON.parse(event.data)]; head(); });
      news.onerror = () => { doc.problems = ["the job's page does not answer any more: what is shown is what it told last"]; head(); };
    }).catch((error) => {
      document.getElementById("head").replaceChildren(make("p", { class: "bad" }, typeof error === "string" ? error : "the job's page does not answer: " + error));
    });
  }

  const kept = document.getElementById("document");
  if (kept) begin(JSON.parse(kept.textContent)); else live();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const one of drawn.values()) if (one.drawing) one.drawing.redraw();
  });
})();
