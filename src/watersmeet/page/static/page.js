// Draws a document: that in the page, or one that is asked for beside it and grows.
"use strict";
(function () {
  const { make, plain, moment, lasting, figure, percent, table } = words;
  const MOST_EVENTS = 1000, REDRAW_MS = 2000;
  const EVENTS = { standstill: "watermark stalled", hot_keys: "hot key", missing_delete_examples: "delete without a row" };
  const STATUS = {
    "caught up": "finished (read all that was there)", finished: "finished (end of input)",
    killed: "killed (its process ended without writing how)", unknown: "running or killed (nothing here can tell)",
    lost: "unknown (this page's server does not answer)",
  };
  let doc, received = null; // the document, and when it came from a server that goes on

  // The clock of whoever wrote the document, in seconds; it stands still in a report.
  function clock() { return doc.now + (received === null ? 0 : (performance.now() - received) / 1000); }

  // A section of the page, made when it first has something to show.
  function section(id, title, ...children) {
    const there = document.getElementById(id);
    if (there) {
      const before = [...there.parentNode.childNodes].slice(1), scrolled = (all) => all.map((one) => one.nodeType === 1 && (one.matches(".scroll") ? one : one.querySelector(".scroll")));
      if (before.length === children.length && before.every((one, n) => one === children[n] || (one.nodeType === 1 && one.isEqualNode(children[n])))) return;
      const places = scrolled(before).map((one) => one && [one.scrollLeft, one.scrollTop]);
      const open = new Set(before.filter((one) => one.tagName === "DETAILS" && one.open).map((one) => one.firstChild.textContent));
      there.parentNode.replaceChildren(there, ...children);
      for (const one of children) if (one.tagName === "DETAILS" && open.has(one.firstChild.textContent)) one.open = true;
      scrolled(children).forEach((one, n) => { if (one && places[n]) [one.scrollLeft, one.scrollTop] = places[n]; });
    } else if (children.length) {
      document.getElementById("main").append(make("section", { "aria-labelledby": id }, make("h2", { id }, title), ...children));
      document.querySelector("#nav ul").append(make("li", {}, make("a", { href: "#" + id }, title)));
    }
  }

  function fact(name, ...value) {
    return make("span", {}, name + " ", make("b", {}, ...value));
  }

  function account() {
    const places = [...new Set(doc.inputs.flatMap((one) => Object.keys(one.places)))];
    const rows = doc.inputs.map((one) => {
      const rest = one.in - Object.values(one.places).reduce((a, b) => a + b, 0);
      return [one.name, figure("rows", one.in), ...places.map((place) => figure("rows", one.places[place] || 0)),
        rest === 0 ? "yes" : make("span", { class: "bad" }, "NO: " + plain(rest) + " rows unaccounted")];
    });
    return table(["input", "rows in", ...places, "adds up"], rows, 1);
  }

  function late() {
    const counts = doc.inputs.map((one) => [one, one.places.late || 0, one.places.broken || 0]).filter(([, late, broken]) => late || broken);
    const rows = counts.map(([one, late, broken]) => [one.name, figure("rows", one.in), figure("rows", late), percent(late, one.in), figure("rows", broken), percent(broken, one.in)]);
    const parts = [], histograms = make("div", { class: "charts" });
    if (rows.length) parts.push(table(["input", "rows in", "late", "late %", "broken", "broken %"], rows, 1), histograms);
    for (const one of doc.inputs) {
      for (const [column, buckets] of Object.entries(one.late)) {
        const most = Math.max(...Object.values(buckets));
        const bars = make("div", { class: "bars" });
        for (const [bucket, rows] of Object.entries(buckets)) bars.append(...bar(bucketed(bucket), rows / most, figure("rows", rows)));
        histograms.append(make("figure", {}, make("figcaption", {}, "Late rows of " + one.name + " by lateness of " + column), bars));
      }
    }
    const samples = doc.samples || [];
    if (samples.length) {
      const rows = samples.map((one) => [one.reason, one.input, typeof one.late_by !== "number" ? "–" : lateBy(one), one.record]);
      parts.push(make("h3", {}, "Samples of late and broken rows"), table(["reason", "input", "late by", "record"], rows));
    }
    return parts;
  }

  // <10s, <1m, <1000, more: as people read them.
  function bucketed(name) {
    const [, border, unit] = /^<(\d+)(\w?)$/.exec(name) || [];
    return border ? "< " + plain(border) + (unit && " " + (unit === "m" ? "min" : unit)) : name;
  }

  // Of times µs, of integers themselves: which one it is says the watermark that the row missed.
  function lateBy(one) {
    const integers = doc.charts.find((chart) => chart.key === "integers"), query = String(one.input).split("/")[0];
    const whole = integers && integers.series.some((line) => line.name === query + "." + one.watermark_key);
    return whole ? plain(one.late_by) : lasting(one.late_by / 1e6);
  }

  function bar(name, share, words, kind = "") {
    const inside = make("div", { "aria-hidden": "true", class: kind });
    inside.style.width = Math.min(100, 100 * share) + "%";
    return [make("span", {}, name), make("div", { class: "track" }, inside), make("span", {}, words)];
  }

  function state() {
    const backlog = Object.values(doc.flows).some((flow) => flow.backlog > 0);  // the forecast is of rows as they come
    const rows = doc.sides.map((one) => {
      const used = percent(one.retained, one.forecast_rows), over = one.forecast_rows !== null && one.retained > one.forecast_rows;
      return [one.name, figure("rows", one.retained), figure("rows", one.forecast_rows), over && !backlog ? make("span", { class: "bad" }, used) : used,
        figure("bytes", one.file_bytes), figure("bytes", one.forecast_bytes)];
    });
    const parts = doc.sides.length ? [table(["input", "retained rows", "forecast", "retained / forecast", "size", "forecast size"], rows, 1)] : [];
    if (doc.limits.length) {
      const bars = make("div", { class: "bars" });
      for (const one of doc.limits) {
        const share = (one.used || 0) / one.limit, used = make("span", {}, figure(one.kind, one.used), " of ", figure(one.kind, one.limit), one.used === null ? "" : " (" + percent(one.used, one.limit) + ")");
        bars.append(...bar(one.owner + ": " + one.name, share, used, share > 0.9 ? "over" : ""));
      }
      parts.push(make("figure", {}, make("figcaption", {}, "Limits"), bars));
    }
    return parts;
  }

  function heavy() {
    const rows = doc.sides.flatMap((one) => one.hot_keys.map((key) => [one.name, key.key, figure("rows", key.rows), percent(key.rows, one.retained)]));
    return rows.length ? [table(["input", "key", "rows (estimate)", "of all retained rows"], rows, 2)] : [];
  }

  // Ticks are broken down by the seconds of their parts, over all points that are shown.
  function parts() {
    const chart = doc.charts.find((one) => one.key === "phases");
    if (!chart) return [];
    const sums = chart.series.map((one) => [one.name, one.values.reduce((a, b) => a + (b || 0), 0), one.values[one.values.length - 1]]);
    const whole = sums.reduce((a, [, sum]) => a + sum, 0);
    return [table(["phase", "of all tick time", "last tick"], sums.map(([name, sum, last]) => [name, percent(sum, whole), figure("seconds", last)]), 1)];
  }

  function anchor(name) { return "input-" + doc.inputs.findIndex((one) => one.name === name); }

  // Who is furthest behind, and since when that is so.
  function holder(chart) {
    const lines = chart.series.filter((one) => !one.at || one.at[one.at.length - 1] === chart.at[chart.at.length - 1]);
    const last = chart.at.length - 1;
    const value = (one, at) => {
      const clock = one.at || chart.at, n = clock === chart.at ? at : clock.indexOf(chart.at[at]);
      return n < 0 ? undefined : one.values[n];
    };
    const least = (at) => {
      let found = null, most = -Infinity;
      for (const one of lines) {
        const mark = value(one, at);
        if (mark === undefined) continue;
        const known = mark === null ? -Infinity : mark;
        most = Math.max(most, known);
        if (!found || known < found.mark) found = { name: one.name, mark: known };
      }
      return found && { ...found, most };
    };
    const now = last >= 0 ? least(last) : null;
    if (!now || lines.length < 2 || now.mark === now.most) return null;
    let since = last;
    while (since > 0) {
      const before = least(since - 1);
      if (!before || before.name !== now.name) break;
      since -= 1;
    }
    return { ...now, since: chart.at[since], until: chart.at[last] };
  }

  function held(of, chart) {
    const found = holder(chart), lines = [];
    if (!found) return make("p", {}, "No partition holds the watermark of " + chart.key + " back: all are at the same time, or there is one.");
    const heard = of.last_row_at[found.name];
    lines.push(make("b", {}, found.name), " holds the watermark of " + chart.key + " back");
    if (found.mark === -Infinity) lines.push(": it has had no row");
    else lines.push(", " + (chart.kind === "time" ? lasting((found.most - found.mark) / 1e6) : plain(found.most - found.mark)) + " behind the partition that is furthest ahead");
    lines.push(", for " + lasting(found.until - found.since) + " (since " + moment(found.since) + " UTC, or longer).");
    if (heard) lines.push(" Its last row arrived " + lasting(Math.max(0, doc.last_tick_us / 1e6 - heard)) + " before the last tick.");
    return make("p", { class: "holder" }, ...lines);
  }

  function inputs() {
    const kinds = new Map(doc.partitions.map((one) => [one.name, one]));
    return doc.inputs.map((one) => {
      const id = anchor(one.name), there = document.getElementById(id), of = kinds.get(one.name);
      const whole = there || make("details", { id }, make("summary", {}, one.name));
      whole.update = () => {
        if (!whole.open) return;
        const standing = doc.events.filter((words) => words.subject === one.name && words.event === "standstill").slice(-1).map((words) => make("p", {}, "Tick " + plain(words.tick) + ": " + words.text));
        const known = of ? [make("p", {}, plain(of.count) + (of.count === 1 ? " partition, " : " partitions, ") + plain(of.idle) + " idle. The chart shows those that are furthest behind."), ...of.charts.map((chart) => held(of, chart))]
          : [make("p", {}, "Nothing is known of its partitions: another query reads them, or no row has come.")];
        const words = make("div", {}, ...standing, ...known);
        if (doc.why && !one.input.startsWith("#")) words.append(make("p", {}, asked(one)));
        const before = whole.querySelector(":scope > div.words");
        words.className = "words";
        if (before) before.replaceWith(words); else whole.append(words);
        for (const chart of of ? of.charts : []) {
          const key = id + " " + chart.key;
          if (!charts.has(key)) whole.append(charts.figure(chart, key));
        }
      };
      if (!there) whole.addEventListener("toggle", () => whole.update());
      whole.update();
      return whole;
    });
  }

  // Leads to the form that asks about rows of an input.
  function asked(one) {
    const link = make("a", { href: "#why" }, "Why is a row of " + one.name + " missing?");
    link.addEventListener("click", (event) => {
      event.preventDefault();
      history.replaceState(null, "", "#why");
      document.getElementById("why").scrollIntoView();
      why.about(one.query, one.input);
    });
    return link;
  }

  // How long ago the last tick ended goes on with the clock, and so do the watermarks' lines.
  function age() {
    const at = document.getElementById("age"), behind = Math.max(0, clock() - doc.last_tick_us / 1e6);
    if (at) at.textContent = lasting(behind < 1 ? 0 : Math.round(behind)) + " ago";
  }

  function head() {
    const first = doc.runs[0], last = doc.runs[doc.runs.length - 1], status = STATUS[doc.status] || doc.status;
    const sum = (of) => doc.inputs.reduce((all, one) => all + (of(one) || 0), 0);
    const rows = sum((one) => one.in), late = sum((one) => one.places.late), broken = sum((one) => one.places.broken);
    const isOn = ["running", "unknown", "lost"].includes(doc.status);
    document.getElementById("head").replaceChildren(make("h1", {}, doc.title), make("div", { class: "facts" },
      fact("status", make("span", ["failed", "killed", "lost"].includes(doc.status) ? { class: "bad" } : {}, status)),
      fact("ticks", plain(doc.ticks)), isOn && doc.last_tick_us ? fact("last tick", make("span", { id: "age" })) : "",
      fact("rows in", figure("rows", rows)),
      fact("late", figure("rows", late), late ? " (" + percent(late, rows) + ")" : ""),
      fact("broken", figure("rows", broken), broken ? " (" + percent(broken, rows) + ")" : ""),
      first ? fact("first started", moment(first.started) + " UTC") : "",
      last && last.ended && !isOn ? fact("ended", moment(last.ended) + " UTC") : "",
      doc.status === "killed" && doc.last_tick_us ? fact("last tick", moment(doc.last_tick_us / 1e6) + " UTC") : "",
      received === null ? fact("as of", moment(doc.now) + " UTC") : ""),
      last && last.error ? make("pre", { class: "bad", tabindex: "0" }, last.error) : "",
      ...doc.problems.map((problem) => make("p", { class: "bad" }, problem)));
    age();
  }

  function errors() {
    return doc.runs.filter((run) => run.error).slice(-10).reverse().map((run) => {
      const [what, ...hint] = run.error.split("\nHint: ");
      return make("figure", {}, make("figcaption", {}, moment(run.ended) + " UTC"), make("pre", { class: "bad", tabindex: "0" }, what),
        hint.length ? make("p", {}, make("b", {}, "What to do: "), hint.join("\n")) : "");
    });
  }

  function sections() {
    head();
    section("plan", "Plan", ...plan.shown(doc.drawing, doc.flows, (name) => "#" + anchor(name)),
      make("details", {}, make("summary", {}, "EXPLAIN"), make("pre", { tabindex: "0" }, doc.plan)));
    section("inputs", "Inputs and their partitions", ...inputs());
    section("why", "Why is a row missing?", ...why.shown(doc));
    if (doc.inputs.length) section("account", "Row accounting", account());
    section("state", "State", ...state());
    section("heavy", "Heavy keys", ...heavy());
    section("late", "Late and broken rows", ...late());
    section("errors", "Errors", ...errors());
    section("phases", "Tick duration by phase", ...parts());
    if (doc.events.length) {
      section("told", "Events", table(["time (UTC)", "tick", "input", "event", "message"],
        doc.events.map((one) => [moment(one.at), plain(one.tick), one.subject, EVENTS[one.event] || one.event, one.text])));
    }
    section("runs", "Runs", table(["started (UTC)", "ended (UTC)", "status", "version", "host", "messages"],
      doc.runs.map((run) => [moment(run.started), run.ended ? moment(run.ended) : "–", run.status, run.version, run.machine, [run.error, ...run.notices].filter(Boolean).join("\n")])));
    const settings = Object.entries(doc.settings);
    if (settings.length) section("settings", "Settings", table(["setting", "value"], settings));
  }

  function timeLines() {
    section("over-time", "Metrics", make("div", { class: "charts" }, ...doc.charts.map((chart) => charts.figure(chart))));
  }

  function follow() {
    const there = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (there && there.tagName === "DETAILS") there.open = true;
  }

  function running() { return doc.status === "running" ? clock() : null; }

  function begin(whole) {
    doc = whole;
    charts.begin(doc.runs, running);
    document.getElementById("nav").replaceChildren(make("ul", {}));
    section("plan", "Plan", "");
    timeLines();
    sections();
    follow();
  }

  // What came since: points to be put behind those that are there, and all else as it is now.
  function grow(more) {
    charts.begin(more.runs, running);
    [doc.now, doc.status, received] = [more.now, more.status, performance.now()];
    for (const chart of more.charts) {
      const known = doc.charts.find((one) => one.key === chart.key);
      if (known) { charts.grow(known, chart); charts.redraw(chart.key); }
      else { doc.charts.push(chart); document.querySelector(".charts").append(charts.figure(chart)); }
    }
    for (const one of more.partitions) {
      const known = doc.partitions.find((other) => other.name === one.name);
      if (!known) { doc.partitions.push(one); continue; }
      Object.assign(known.last_row_at, one.last_row_at);
      known.count = one.count;
      known.idle = one.idle;
      for (const chart of one.charts) {
        const of = known.charts.find((other) => other.key === chart.key);
        if (of) { charts.grow(of, chart); charts.redraw(anchor(one.name) + " " + chart.key); } else known.charts.push(chart);
      }
    }
    const events = doc.events.concat(more.events).slice(-MOST_EVENTS), kept = { charts: doc.charts, partitions: doc.partitions, events };
    for (const name of ["inputs", "sides"]) if (!more[name].length) kept[name] = doc[name];
    if (!more.sides.length) kept.limits = doc.limits;
    doc = { ...more, ...kept, flows: { ...doc.flows, ...more.flows }, ticks: Math.max(doc.ticks, more.ticks) };
    sections();
  }

  function live() {
    fetch("document.json").then(async (answer) => {
      if (!answer.ok) throw await answer.text();
      return answer.json();
    }).then((whole) => {
      received = performance.now();
      begin(whole);
      setInterval(() => { if (doc.status === "running") charts.advance(); }, REDRAW_MS);
      setInterval(() => { if (doc.status === "running" || doc.status === "unknown") age(); }, 1000);
      const news = new EventSource("events?after=" + whole.last_tick_us);
      news.addEventListener("more", (event) => grow(JSON.parse(event.data)));
      news.addEventListener("problem", (event) => { doc.problems = [JSON.parse(event.data)]; head(); });
      news.onerror = () => {
        if (doc.status === "lost") return;
        doc.problems = ["The server of this page has not answered since " + moment(clock()) + " UTC: the job's process ended, was killed or cannot be reached. Shown is what it said last."];
        if (doc.status === "running" || doc.status === "unknown" || doc.status === "starting") [doc.status, doc.now, received] = ["lost", clock(), null];
        head();
      };
    }).catch((error) => {
      document.getElementById("head").replaceChildren(make("p", { class: "bad" }, typeof error === "string" ? error : "The server of this page does not answer: " + error));
    });
  }

  addEventListener("hashchange", follow);
  const kept = document.getElementById("document");
  if (kept) begin(JSON.parse(kept.textContent)); else live();
})();
