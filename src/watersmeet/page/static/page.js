// Draws a document: that in the page, or one that is asked for beside it and grows.
"use strict";
(function () {
  const { make, plain, moment, lasting, shown, percent, table } = words;
  const MOST_TOLD = 1000;
  const TOLD = { standstill: "watermark stands still", heavy_keys: "heavy key", missing_deletes: "delete of nothing" };
  let doc;

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

  function fact(name, value) {
    return make("span", {}, name + " ", make("b", {}, value));
  }

  function account() {
    const places = [...new Set(doc.inputs.flatMap((one) => Object.keys(one.places)))];
    const rows = doc.inputs.map((one) => {
      const rest = one.in - Object.values(one.places).reduce((a, b) => a + b, 0);
      return [one.name, plain(one.in), ...places.map((place) => plain(one.places[place] || 0)),
        rest === 0 ? "yes" : make("span", { class: "bad" }, "NO: " + plain(rest) + " rows unaccounted")];
    });
    return table(["input", "in", ...places, "adds up"], rows, 1);
  }

  function late() {
    const parts = [];
    for (const one of doc.inputs) {
      for (const [column, buckets] of Object.entries(one.late)) {
        const most = Math.max(...Object.values(buckets));
        const bars = make("div", { class: "bars" });
        for (const [bucket, rows] of Object.entries(buckets)) bars.append(...bar(bucket, rows / most, plain(rows)));
        parts.push(make("figure", {}, make("figcaption", {}, one.name + ": rows by how late they were, of " + column), bars));
      }
    }
    const samples = doc.samples || [];
    if (samples.length) {
      const rows = samples.map((one) => [one.reason, one.input, one.late_by === null ? "–" : lateBy(one), one.record]);
      parts.push(make("h3", {}, "Some of the rows that were set aside last"), table(["why", "input", "late by", "row"], rows, 9));
    }
    return parts;
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
    const rows = doc.sides.map((one) => {
      const over = one.forecast_rows !== null && one.retained > one.forecast_rows;
      return [one.name, plain(one.retained), shown("rows", one.forecast_rows), over ? make("span", { class: "bad" }, percent(one.retained, one.forecast_rows)) : percent(one.retained, one.forecast_rows),
        shown("bytes", one.file_bytes), shown("bytes", one.forecast_bytes)];
    });
    const parts = doc.sides.length ? [table(["kept of", "rows", "forecast", "of it", "in files", "forecast of that"], rows, 1)] : [];
    if (doc.limits.length) {
      const bars = make("div", { class: "bars" });
      for (const one of doc.limits) {
        const share = (one.used || 0) / one.most;
        bars.append(...bar(one.of + ": " + one.name, share, shown(one.kind, one.used) + " of " + shown(one.kind, one.most), share > 0.9 ? "over" : ""));
      }
      parts.push(make("figure", {}, make("figcaption", {}, "Limits"), bars));
    }
    return parts;
  }

  function heavy() {
    const rows = doc.sides.flatMap((one) => one.keys.map((key) => [one.name, key.key, plain(key.rows), percent(key.rows, one.retained)]));
    return rows.length ? [table(["kept of", "key", "rows, about", "of all"], rows, 2)] : [];
  }

  // Ticks are broken down by the seconds of their parts, over all points that are shown.
  function parts() {
    const chart = doc.charts.find((one) => one.key === "parts");
    if (!chart) return [];
    const sums = chart.series.map((one) => [one.name, one.values.reduce((a, b) => a + (b || 0), 0), one.values[one.values.length - 1]]);
    const whole = sums.reduce((a, [, sum]) => a + sum, 0);
    return [table(["part of a tick", "of all its time", "in the last tick"], sums.map(([name, sum, last]) => [name, percent(sum, whole), shown("seconds", last)]), 1)];
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
    if (!found) return make("p", {}, chart.key + ": nobody holds it back: all partitions have come as far, or there is one.");
    const heard = of.heard[found.name];
    lines.push(make("b", {}, found.name), " holds " + chart.key + " back");
    if (found.mark === -Infinity) lines.push(": it has had no row");
    else lines.push(", " + (chart.kind === "time" ? lasting((found.most - found.mark) / 1e6) : plain(found.most - found.mark)) + " behind the first of those shown");
    lines.push(", for " + lasting(found.until - found.since) + " (since " + moment(found.since) + " UTC, as far as it is kept).");
    if (heard) lines.push(" Its last row came " + lasting(Math.max(0, doc.until / 1e6 - heard)) + " before the last tick.");
    return make("p", { class: "holder" }, ...lines);
  }

  function inputs() {
    const kinds = new Map(doc.partitions.map((one) => [one.name, one]));
    return doc.inputs.map((one) => {
      const id = anchor(one.name), there = document.getElementById(id), of = kinds.get(one.name);
      const whole = there || make("details", { id }, make("summary", {}, one.name));
      whole.update = () => {
        if (!whole.open) return;
        const standing = doc.told.filter((words) => words.of === one.name && words.what === "standstill").slice(-1).map((words) => make("p", {}, "Told in tick " + plain(words.tick) + ": " + words.text));
        const known = of ? [make("p", {}, plain(of.count) + (of.count === 1 ? " partition, " : " partitions, ") + plain(of.idle) + " idle; lines of those that are furthest behind."), ...of.charts.map((chart) => held(of, chart))]
          : [make("p", {}, "Nothing is told of its partitions: another query reads it, or it has had no row.")];
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
    const link = make("a", { href: "#why" }, "Why is a row of " + one.name + " not there?");
    link.addEventListener("click", (event) => {
      event.preventDefault();
      history.replaceState(null, "", "#why");
      document.getElementById("why").scrollIntoView();
      why.about(one.query, one.input);
    });
    return link;
  }

  function head() {
    const first = doc.runs[0], last = doc.runs[doc.runs.length - 1];
    const rows = doc.inputs.reduce((sum, one) => sum + one.in, 0);
    document.getElementById("head").replaceChildren(make("h1", {}, doc.title), make("div", { class: "facts" },
      fact("status", doc.status), fact("ticks", plain(doc.ticks)), fact("rows in", plain(rows)),
      first ? fact("since", moment(first.started) + " UTC") : "",
      last && last.ended ? fact("until", moment(last.ended) + " UTC") : ""),
      last && last.error ? make("pre", { class: "bad", tabindex: "0" }, last.error) : "",
      ...doc.problems.map((problem) => make("p", { class: "bad" }, problem)));
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
    section("inputs", "Inputs: who holds them back", ...inputs());
    section("why", "Why is a row not there?", ...why.shown(doc));
    if (doc.inputs.length) section("account", "Account of rows", account());
    section("state", "State", ...state());
    section("heavy", "Keys with most rows", ...heavy());
    section("late", "Late rows", ...late());
    section("errors", "Errors", ...errors());
    section("parts", "Ticks by their parts", ...parts());
    if (doc.told.length) {
      section("told", "What was told", table(["when (UTC)", "tick", "of", "what", "words"],
        doc.told.map((one) => [moment(one.at), plain(one.tick), one.of, TOLD[one.what] || one.what, one.text]), 9));
    }
    section("runs", "Runs", table(["started (UTC)", "ended", "how", "version", "machine", "told"],
      doc.runs.map((run) => [moment(run.started), run.ended ? moment(run.ended) : "–", run.how, run.version, run.machine, [run.error, ...run.notices].filter(Boolean).join("\n")]), 9));
    const settings = Object.entries(doc.settings);
    if (settings.length) section("settings", "Settings", table(["setting", "value"], settings, 9));
  }

  function timeLines() {
    section("over-time", "Over time", make("div", { class: "charts" }, ...doc.charts.map((chart) => charts.figure(chart))));
  }

  function follow() {
    const there = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (there && there.tagName === "DETAILS") there.open = true;
  }

  function begin(whole) {
    doc = whole;
    charts.begin(doc.runs);
    document.getElementById("nav").replaceChildren(make("ul", {}));
    section("plan", "Plan", "");
    timeLines();
    sections();
    follow();
  }

  // What came since: points to be put behind those that are there, and all else as it is now.
  function grow(more) {
    charts.begin(more.runs);
    for (const chart of more.charts) {
      const known = doc.charts.find((one) => one.key === chart.key);
      if (known) charts.redraw(chart.key, charts.grow(known, chart));
      else { doc.charts.push(chart); document.querySelector(".charts").append(charts.figure(chart)); }
    }
    for (const one of more.partitions) {
      const known = doc.partitions.find((other) => other.name === one.name);
      if (!known) { doc.partitions.push(one); continue; }
      Object.assign(known.heard, one.heard);
      known.count = one.count;
      known.idle = one.idle;
      for (const chart of one.charts) {
        const of = known.charts.find((other) => other.key === chart.key);
        if (of) charts.redraw(anchor(one.name) + " " + chart.key, charts.grow(of, chart)); else known.charts.push(chart);
      }
    }
    const told = doc.told.concat(more.told).slice(-MOST_TOLD), kept = { charts: doc.charts, partitions: doc.partitions, told };
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
      begin(whole);
      const news = new EventSource("events?after=" + whole.until);
      news.addEventListener("more", (event) => grow(JSON.parse(event.data)));
      news.addEventListener("problem", (event) => { doc.problems = [JSON.parse(event.data)]; head(); });
      news.onerror = () => { doc.problems = ["the job's page does not answer any more: what is shown is what it told last"]; head(); };
    }).catch((error) => {
      document.getElementById("head").replaceChildren(make("p", { class: "bad" }, typeof error === "string" ? error : "the job's page does not answer: " + error));
    });
  }

  addEventListener("hashchange", follow);
  const kept = document.getElementById("document");
  if (kept) begin(JSON.parse(kept.textContent)); else live();
})();
