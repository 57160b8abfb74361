// Time series. A chart is drawn when it comes into view, and again when it has more points or more room.
"use strict";
const charts = (function () {
  const { make, draw, moment, brief, shown, exact, table, width, rate, counted } = words;
  const COLOURS = 8, MOST_POINTS = 2000, HEIGHT = 220, TOP = 10, BOTTOM = 40, RIGHT = 10, GAP = 12;
  // Seconds between two ticks of an axis of time, or of durations.
  const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const drawn = new Map(); // key of a chart -> the chart, what is drawn of it, and its elements
  let starts = []; // when runs began
  let clock = () => null; // the clock of a job that runs; null: none runs

  // The step between ticks that people count in, so that there are about ``count`` of them.
  function step(low, high, count, kind) {
    const unit = kind === "time" ? 1e6 : 1, rough = (high - low) / unit / Math.max(1, count);
    const times = kind === "time" || kind === "seconds", least = kind === "time" ? Math.max(1, rough) : rough;
    const known = times ? STEPS.find((one) => one >= least) : null;
    if (known) return known * unit;
    const days = times ? 86400 : 1, power = 10 ** Math.floor(Math.log10(rough / days || 1));
    const nice = [1, 2, 5, 10].map((one) => one * power).find((one) => one * days >= rough * 0.999) || 10 * power;
    return (kind === "rate" ? nice : Math.max(1, nice)) * days * unit;
  }

  function ticks(low, high, apart) {
    const every = [];
    for (let n = Math.ceil(low / apart - 1e-9); n * apart <= high + apart * 1e-9; n++) every.push(n * apart || 0);
    return every;
  }

  function clocks(chart, one) { return one.at || chart.at; }

  // The points of a series as [clock, value, its peak since the point before], NULL where a run began; ``true`` behind one
  // that is not of a tick, but of now.
  function points(chart, one, below) {
    const at = clocks(chart, one), now = chart.to_now ? clock() : null, last = at.length - 1, every = [];
    let run = 0;
    for (let n = 0; n <= last; n++) {
      let began = false;
      while (run < starts.length && starts[run] <= at[n]) { began = true; run += 1; }
      if (began && n) every.push(null);
      const value = one.values[n];
      every.push(value === null ? null : [at[n], value + (below ? below.get(at[n]) || 0 : 0), one.peaks ? one.peaks[n] : null]);
    }
    const end = every[every.length - 1];
    if (now !== null && end && now > end[0] && run === starts.length) every.push([now, chart.kind === "seconds" ? end[1] + now - end[0] : end[1], null, true]);
    return every;
  }

  // The lines of a chart; where it is stacked, each stands on those before it.
  function lines(chart) {
    const below = chart.stacked ? new Map() : null;
    return chart.series.map((one) => {
      const line = points(chart, one, below);
      if (below) for (const point of line) if (point) below.set(point[0], point[1]);
      return line;
    });
  }

  function bounds(every) {
    let low = Infinity, high = -Infinity, first = Infinity, last = -Infinity;
    for (const line of every) for (const point of line) {
      if (!point) continue;
      const [at, value, peak] = point, most = peak === null ? value : Math.max(value, peak);
      if (at < first) first = at;
      if (at > last) last = at;
      if (value < low) low = value;
      if (most > high) high = most;
    }
    return { low, high, first, last };
  }

  // The clock itself, as one more line of times, where they are near it; of old data they are not.
  function withClock(chart, { low, high, first, last }) {
    return chart.kind === "time" && Math.abs(last - high / 1e6) <= 60 + 4 * (last - first) + (high - low) / 1e6;
  }

  // On the axis the unit stands once, in the title.
  function label(kind, value, apart) {
    if (kind === "rate") return rate(value);
    if (kind === "rows") return counted(value);
    if (kind === "time") return apart >= 86400e6 ? moment(value / 1e6).slice(0, -9) : brief(value / 1e6).slice(0, apart < 60e6 ? undefined : -3);
    return shown(kind, value);
  }

  function plot(entry) {
    const { chart, place } = entry, all = Math.max(240, place.clientWidth), whole = HEIGHT - TOP - BOTTOM;
    const every = lines(chart), range = bounds(every), times = chart.kind === "time" || chart.kind === "integer";
    let { low, high, first, last } = range;
    if (!(first <= last)) return;
    const withLine = withClock(chart, range), now = clock();
    if (withLine) { low = Math.min(low, first * 1e6); high = Math.max(high, last * 1e6); }
    if (now !== null) last = Math.max(last, now);
    if (last - first < 2) [first, last] = [first - 15, last + 15];
    const least = Math.max(chart.kind === "time" ? 1e6 : 1, Math.abs(high) * 1e-9);
    if (!times) [low, high] = [Math.min(0, low), Math.max(0, high) || 1];
    else if (high - low < least) [low, high] = [low - least, high + least];
    const apart = step(low, high, 4, chart.kind);
    if (!times) [low, high] = [Math.floor(low / apart) * apart, Math.ceil(high / apart - 1e-9) * apart];
    const marks = ticks(low, high, apart).map((value) => [value, label(chart.kind, value, apart)]);
    const left = Math.min(all * 0.6, 14 + Math.max(...marks.map(([, text]) => width(text)))), wide = all - left - RIGHT;
    const x = (at) => Math.round((left + (at - first) / (last - first) * wide) * 2) / 2;
    x.room = wide;
    const y = (value) => Math.round((TOP + (1 - (value - low) / (high - low)) * whole) * 2) / 2;

    const svg = draw("svg", { width: all, height: HEIGHT, viewBox: `0 0 ${all} ${HEIGHT}` });
    for (const [value, text] of marks) {
      svg.append(draw("path", { class: "grid", d: `M${left - 5} ${y(value)}H${all - RIGHT}` }),
        draw("text", { x: left - 9, y: y(value) + 4, "text-anchor": "end" }, text));
    }
    svg.append(clockAxis(first, last, x, wide, left, all));

    const edges = [];
    every.forEach((line, n) => {
      const { path, dots, area } = shape(line, times, x, y, every[n - 1], low);
      if (chart.stacked) svg.append(draw("path", { class: "area c" + n % COLOURS, d: area }));
      edges.push(draw("path", { class: "line c" + n % COLOURS, d: path }), draw("path", { class: "dots c" + n % COLOURS, d: dots }));
    });
    if (withLine) svg.append(draw("path", { class: "clock", d: `M${x(first)} ${y(Math.max(low, first * 1e6))}L${x(last)} ${y(Math.min(high, last * 1e6))}` }));
    const cursor = draw("path", { class: "cursor", d: "" });
    svg.append(...edges, cursor);
    const hadClock = entry.hasClock;
    Object.assign(entry, { width: all, drawing: svg, cursor, at: (pixel) => first + (pixel - left) / wide * (last - first), x, hasClock: withLine });
    place.replaceChildren(svg);
    if (hadClock !== withLine) legend(entry, null);
  }

  // The axis of the clock (UTC): labels that neither touch each other nor the edges; a day has its date once.
  function clockAxis(first, last, x, wide, left, all) {
    const axis = draw("g", {}), room = width("00:00:00") + GAP;
    const apart = Math.max(1, step(first, last, wide / room - 1, "seconds")), days = apart >= 86400;
    let day = "", free = [0, 0];
    for (const at of ticks(first, last, apart)) {
      const text = moment(at), date = text.slice(0, 10), texts = days ? [date] : [text.slice(11, apart < 60 ? 19 : 16)];
      if (!days && date !== day) texts.push(date);
      axis.append(draw("path", { class: "grid", d: `M${x(at)} ${TOP}V${HEIGHT - BOTTOM + 5}` }));
      texts.forEach((of, line) => {
        const half = width(of) / 2, middle = Math.max(half, Math.min(all - half, x(at)));
        if (middle - half < free[line] || Math.abs(middle - x(at)) > half) return;
        free[line] = middle + half + GAP / 2;
        if (line) day = date;
        axis.append(draw("text", { x: Math.round(middle * 10) / 10, y: HEIGHT - BOTTOM + 18 + 15 * line, "text-anchor": "middle" }, of));
      });
    }
    return axis;
  }

  // The paths of a line. ``stepped``: a value holds until the next one, as a watermark does.
  function shape(line, stepped, x, y, under, low) {
    let path = "", dots = "", area = "", begun = false;
    const few = line.length * 8 < x.room, heights = line.map((point) => point && y(point[1]));
    const tops = line.map((point, n) => (point && point[2] !== null && heights[n] - y(point[2]) >= 1 ? y(point[2]) : null));
    const isFlat = (n) => heights[n] !== null && heights[n] === heights[n - 1] && tops[n] === null;
    line.forEach((point, n) => {
      if (!point) { begun = false; return; }
      const at = x(point[0]), place = at + " " + heights[n];
      if (!begun) path += "M" + place + "h0";
      else if (!isFlat(n) || !isFlat(n + 1)) {
        if (stepped) path += "H" + at + "V" + heights[n];
        else path += (tops[n] === null ? "" : "L" + at + " " + tops[n]) + "L" + place;
      }
      if (few && !point[3] || !begun && !line[n + 1]) dots += "M" + place + "h0";
      begun = true;
    });
    const known = line.filter(Boolean);
    if (known.length) {
      const beneath = (under || []).filter(Boolean).reverse();
      area = "M" + known.map(([at, value]) => `${x(at)} ${y(value)}`).join("L");
      area += beneath.length ? "L" + beneath.map(([at, value]) => `${x(at)} ${y(value)}`).join("L") + "Z" : `V${y(low)}H${x(known[0][0])}Z`;
    }
    return { path, dots, area };
  }

  // What the lines are at a clock: of each its last point by then.
  function point(entry, event) {
    const box = entry.place.getBoundingClientRect(), asked = entry.at(event.clientX - box.left);
    let nearest = null;
    for (const one of entry.chart.series) for (const at of clocks(entry.chart, one)) {
      if (nearest === null || Math.abs(at - asked) < Math.abs(nearest - asked)) nearest = at;
    }
    if (nearest === null) return;
    entry.cursor.setAttribute("d", `M${entry.x(nearest)} ${TOP}V${HEIGHT - BOTTOM}`);
    legend(entry, nearest);
  }

  function leave(entry) {
    entry.cursor.setAttribute("d", "");
    legend(entry, null);
  }

  function legend(entry, at) {
    const { chart } = entry, names = chart.series.map((one, n) => {
      const found = at === null ? -1 : clocks(chart, one).indexOf(at);
      const value = at === null ? "" : make("b", {}, found < 0 ? "–" : exact(chart.kind, one.values[found]));
      return make("li", {}, make("span", { "aria-hidden": "true", class: "c" + n % COLOURS }), make("bdi", {}, one.name), value);
    });
    if (entry.hasClock) names.push(make("li", {}, make("span", { "aria-hidden": "true", class: "dashed" }), "clock"));
    entry.legend.replaceChildren(...names, at === null ? "" : make("li", { class: "when" }, exact("time", Math.round(at * 1e6))));
  }

  const inView = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      const entry = [...drawn.values()].find((one) => one.place === target);
      if (!entry) continue;
      entry.isSeen = isIntersecting;
      if (isIntersecting && entry.isOld) renew(entry);
    }
  }, { rootMargin: "200px" });

  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const entry = [...drawn.values()].find((one) => one.place === target);
      if (entry && entry.drawing && entry.width !== Math.max(240, target.clientWidth)) renew(entry);
    }
  });

  // A page that is printed shows all charts.
  addEventListener("beforeprint", () => {
    for (const entry of drawn.values()) if (entry.place.clientWidth) plot(entry);
  });

  function renew(entry) {
    entry.isOld = !entry.isSeen;
    if (entry.isSeen) plot(entry);
  }

  function summary(chart) {
    return table(["series", "minimum", "maximum", "last"], chart.series.map((one) => {
      const every = points(chart, one).filter(Boolean);
      const { low, high } = bounds([every]), last = every.length && one.values[one.values.length - 1] !== null ? every[every.length - 1][1] : null;
      return [make("bdi", {}, one.name), ...[low, high, last].map((value) => (chart.kind === "time" ? shown : exact)(chart.kind, value))];
    }), 1);
  }

  // The figure of a chart, which grows with it. ``key``: another one than the chart has.
  function figure(chart, key = chart.key) {
    const place = make("div", { "aria-hidden": "true", class: "plot" });
    const numbers = make("details", {}, make("summary", {}, "Values"));
    numbers.addEventListener("toggle", () => {
      if (numbers.open) numbers.replaceChildren(numbers.firstChild, summary(chart));
    });
    const entry = { chart, place, numbers, legend: make("ul", { class: "legend" }), drawing: null, hasClock: false, isSeen: false, isOld: true };
    place.addEventListener("pointermove", (event) => point(entry, event));
    place.addEventListener("pointerleave", () => leave(entry));
    legend(entry, null);
    drawn.set(key, entry);
    inView.observe(place);
    sizes.observe(place);
    return make("figure", {}, make("figcaption", {}, chart.title), place, entry.legend, numbers);
  }

  // What a line was at most until its first new point, which only the point before it tells.
  function joint(chart, known, more, at) {
    const last = clocks(chart, known).length - 1, before = clocks(chart, known)[last];
    if (!more.peaks || !at.length || known.values[last] === null || starts.some((one) => one > before && one <= at[0])) return more.peaks;
    return [known.values[last] + at[0] - before, ...more.peaks.slice(1)];
  }

  // Append points to those that are there.
  function grow(chart, more) {
    const together = more.series.length === chart.series.length && ![...chart.series, ...more.series].some((one) => one.at)
      && more.series.every((one, n) => one.name === chart.series[n].name);
    if (!together) for (const one of chart.series) one.at = clocks(chart, one);
    for (const one of more.series) {
      const known = chart.series.find((other) => other.name === one.name), at = clocks(more, one);
      if (!known) { chart.series.push({ ...one, at }); continue; }
      if (known.peaks) known.peaks = known.peaks.concat(joint(chart, known, one, at)).slice(-MOST_POINTS);
      known.values = known.values.concat(one.values).slice(-MOST_POINTS);
      if (!together) known.at = known.at.concat(at).slice(-MOST_POINTS);
    }
    chart.at = chart.at.concat(more.at).slice(-MOST_POINTS);
  }

  function redraw(key) {
    const entry = drawn.get(key);
    if (!entry) return;
    renew(entry);
    legend(entry, null);
    if (entry.numbers.open) entry.numbers.replaceChildren(entry.numbers.firstChild, summary(entry.chart));
  }

  // ``running``: gives the clock of a job that runs, null of one that does not.
  function begin(runs, running) {
    starts = runs.map((run) => run.started);
    clock = running;
  }

  // Draw again what goes on with the clock, as far as it is in view and nobody reads values off it.
  function advance() {
    for (const entry of drawn.values()) if (entry.isSeen && !entry.place.matches(":hover")) renew(entry);
  }

  return { figure, grow, redraw, advance, begin, has: (key) => drawn.has(key) };
})();
