// Time lines. A chart is drawn when it is first seen, and again when it has more points.
"use strict";
const charts = (function () {
  const { make, moment, shown, table } = words;
  const COLOURS = 8, MOST_POINTS = 2000, HEIGHT = 220;
  // Seconds between two lines of a grid, that people count in.
  const APART = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200]
    .concat([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000].map((days) => days * 86400));
  const INCREMENTS = { seconds: APART, time: APART.map((seconds) => seconds * 1e6) };
  const drawn = new Map(); // key of a chart -> the chart, its drawing, and its elements
  let starts = []; // when runs began

  function ink(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function colour(n) { return ink("--s" + (n % COLOURS)); }

  function clocks(chart, one) { return one.at || chart.at; }

  // The clock, as one more line of times, where they are near it; of old data they are not.
  function withClock(chart) {
    if (chart.kind !== "time" || !chart.at.length) return false;
    const last = chart.at[chart.at.length - 1], marks = chart.series.flatMap((one) => one.values).filter((value) => value !== null);
    const most = marks.reduce((a, b) => Math.max(a, b), -Infinity), least = marks.reduce((a, b) => Math.min(a, b), Infinity);
    return Math.abs(last - most / 1e6) <= 60 + 4 * (last - chart.at[0]) + (most - least) / 1e6;
  }

  // Series on one axis of time, with a gap where a run began and nothing was known for a while.
  function aligned(chart, clock) {
    const own = chart.series.some((one) => one.at);
    let ticks = chart.at;
    if (own) {
      const every = new Set();
      for (const one of chart.series) for (const at of clocks(chart, one)) every.add(at);
      ticks = [...every].sort((a, b) => a - b);
    }
    const times = [], gaps = new Set();
    let run = 0;
    for (const at of ticks) {
      let began = false;
      while (run < starts.length && starts[run] <= at) { began = true; run += 1; }
      if (began && times.length) { gaps.add(times.length); times.push((times[times.length - 1] + at) / 2); }
      times.push(at);
    }
    const lines = chart.series.map((one) => {
      if (!own) {
        let next = 0;
        return times.map((at, n) => (gaps.has(n) ? null : one.values[next++]));
      }
      const values = new Map(clocks(chart, one).map((at, n) => [at, one.values[n]]));
      return times.map((at, n) => (gaps.has(n) ? null : values.has(at) ? values.get(at) : undefined));
    });
    if (chart.stacked) {
      for (let line = 1; line < lines.length; line++) {
        lines[line] = lines[line].map((value, n) => (gaps.has(n) ? null : (value || 0) + (lines[line - 1][n] || 0)));
      }
    }
    if (clock) lines.push(times.map((at, n) => (gaps.has(n) ? null : at * 1e6)));
    return [times, ...lines];
  }

  // Clock times (UTC), as far apart as they are: a day has its date, a minute no seconds.
  function labels(u, splits) {
    const apart = splits.length > 1 ? splits[1] - splits[0] : 60;
    let day = "";
    return splits.map((at) => {
      const text = moment(at), date = text.slice(5, 10), clock = text.slice(11, apart < 60 ? 19 : 16);
      const label = apart >= 86400 ? text.slice(0, 10) : date === day ? clock : clock + "\n" + text.slice(0, 10);
      day = date;
      return label;
    });
  }

  function plot(entry) {
    const { chart, place } = entry;
    entry.clock = withClock(chart);
    const axis = { stroke: () => ink("--faint"), grid: { stroke: () => ink("--line"), width: 1 }, ticks: { stroke: () => ink("--line") } };
    const wide = (values) => 16 + 8 * Math.max(2, ...values.map((value) => (value || "").length));
    const times = chart.kind === "time" || chart.kind === "integer";
    const short = (value) => chart.kind === "time" ? moment(value / 1e6).slice(5) : shown(chart.kind, value);
    const lines = chart.series.map((one, n) => ({
      label: one.name, stroke: () => colour(n), width: 1.5, spanGaps: false,
      points: { show: clocks(chart, one).length < 60, size: 5 },
    }));
    if (entry.clock) lines.push({ label: "the clock", stroke: () => ink("--faint"), width: 1, dash: [4, 4], points: { show: false } });
    const options = {
      width: Math.max(240, place.clientWidth), height: HEIGHT, tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      legend: { show: false }, cursor: { y: false },
      scales: { y: { range: (u, low, high) => times ? (low === high ? [low - 1, high + 1] : [low, high]) : [Math.min(0, low), high > 0 ? high * 1.05 : 1] } },
      axes: [{ ...axis, values: labels, size: 44 }, { ...axis, ...(INCREMENTS[chart.kind] ? { incrs: INCREMENTS[chart.kind] } : {}), size: (u, values) => (values ? wide(values) : 60), values: (u, splits) => splits.map(short) }],
      series: [{}, ...lines],
    };
    if (chart.stacked) {
      options.series[1].fill = () => colour(0) + "55";
      options.bands = chart.series.slice(1).map((_, n) => ({ series: [n + 2, n + 1], fill: () => colour(n + 1) + "55" }));
    }
    entry.drawing = new uPlot(options, aligned(chart, entry.clock), place);
    new ResizeObserver(() => {
      const width = Math.max(240, place.clientWidth);
      if (entry.drawing && width !== entry.drawing.width) entry.drawing.setSize({ width, height: HEIGHT });
    }).observe(place);
  }

  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      const entry = [...drawn.values()].find((one) => one.place === target);
      if (!isIntersecting || !entry) continue;
      seen.unobserve(target);
      if (!entry.drawing) plot(entry);
    }
  }, { rootMargin: "200px" });

  function reckoned(chart) {
    return table(["line", "least", "most", "last"], chart.series.map((one) => {
      const values = one.values.filter((value) => value !== null);
      const least = values.reduce((a, b) => Math.min(a, b), Infinity), most = values.reduce((a, b) => Math.max(a, b), -Infinity);
      return [one.name, ...[least, most, values[values.length - 1]].map((value) => shown(chart.kind, value))];
    }), 1);
  }

  function legend(entry) {
    const names = entry.chart.series.map((one, n) => {
      const mark = make("span", { "aria-hidden": "true" });
      mark.style.background = "var(--s" + (n % COLOURS) + ")";
      return make("li", {}, mark, one.name);
    });
    entry.legend.replaceChildren(...names);
  }

  // The figure of a chart, which grows with it. ``key``: another one than the chart has.
  function figure(chart, key = chart.key) {
    const place = make("div", { "aria-hidden": "true", class: "plot" });
    const numbers = make("details", {}, make("summary", {}, "In numbers"));
    numbers.addEventListener("toggle", () => {
      if (numbers.open) numbers.replaceChildren(numbers.firstChild, reckoned(chart));
    });
    const entry = { chart, place, numbers, legend: make("ul", { class: "legend" }), drawing: null, clock: false };
    legend(entry);
    drawn.set(key, entry);
    seen.observe(place);
    return make("figure", {}, make("figcaption", {}, chart.title), place, entry.legend, numbers);
  }

  // Points behind those that are there; whether there are new lines.
  function grow(chart, more) {
    let same = true;
    const together = more.series.length === chart.series.length && ![...chart.series, ...more.series].some((one) => one.at)
      && more.series.every((one, n) => one.name === chart.series[n].name);
    if (!together) {
      for (const one of chart.series) one.at = clocks(chart, one);
      for (const one of more.series) {
        const known = chart.series.find((other) => other.name === one.name), at = clocks(more, one);
        if (!known) { chart.series.push({ ...one, at }); same = false; continue; }
        known.at = known.at.concat(at).slice(-MOST_POINTS);
        known.values = known.values.concat(one.values).slice(-MOST_POINTS);
      }
    } else {
      for (const [n, one] of more.series.entries()) chart.series[n].values = chart.series[n].values.concat(one.values).slice(-MOST_POINTS);
    }
    chart.at = chart.at.concat(more.at).slice(-MOST_POINTS);
    return same;
  }

  function redraw(key, same) {
    const entry = drawn.get(key);
    if (!entry) return;
    if (!same) {
      if (entry.drawing) entry.drawing.destroy();
      entry.drawing = null;
      legend(entry);
      seen.observe(entry.place);
    } else if (entry.drawing) {
      entry.drawing.setData(aligned(entry.chart, entry.clock));
    }
    if (entry.numbers.open) entry.numbers.replaceChildren(entry.numbers.firstChild, reckoned(entry.chart));
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const entry of drawn.values()) if (entry.drawing) entry.drawing.redraw();
  });

  return { figure, grow, redraw, has: (key) => drawn.has(key), begin: (runs) => { starts = runs.map((run) => run.started); } };
})();
