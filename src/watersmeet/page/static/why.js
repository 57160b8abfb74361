// Asks what became of rows of an input, and shows the answer, which is that of the command.
"use strict";
const why = (function () {
  const { make, plain } = words;
  let job, form, input, rows, time, ask, command, answer, columns, asking = null;
  let known = null; // inputs by name, as the job's text has them

  function labelled(text, field, hint) {
    const id = field.id;
    if (hint) field.setAttribute("aria-describedby", id + "-hint");
    return make("div", { class: "field" }, make("label", { for: id }, text), field, hint ? make("small", { id: id + "-hint" }, hint) : null);
  }

  function field(id, attributes) {
    return make("input", { id, autocomplete: "off", spellcheck: "false", maxlength: job.max_characters, ...attributes });
  }

  // A column and the value that it has.
  function row(column) {
    const n = rows.childElementCount + 1, number = n > 1 ? " " + n : "";
    rows.append(make("div", { class: "row" },
      labelled("Key, or column" + number, field("why-column-" + n, { list: "why-columns", value: column, placeholder: "the key" })),
      labelled("is" + number, field("why-value-" + n, { placeholder: "a value, or NULL" }))));
  }

  function question() {
    const [query, alias] = JSON.parse(input.value || '["",""]');
    const keys = [...rows.children].map((one) => [...one.querySelectorAll("input")].map((of) => of.value))
      .filter(([, value]) => value !== "").map(([column, value]) => (column.trim() ? column.trim() + "=" : "") + value);
    return { query, alias, keys, time: time.value.trim() };
  }

  function quoted(text) { return /^[\w@%+=:,./-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\"'\"'") + "'"; }

  function spelled() {
    const { query, alias, keys, time: at } = question();
    const several = [...input.options].filter((one) => JSON.parse(one.value)[1] === alias).length > 1;
    return [job.command, "--input", quoted(alias), ...(several ? ["--query", quoted(query)] : []),
      ...keys.map((key) => "--key=" + quoted(key)), ...(at ? ["--time=" + quoted(at)] : [])].join(" ");
  }

  function update() { command.textContent = spelled(); }

  function choose() {
    const of = known && known.get(input.value);
    suggest(of);
    rows.replaceChildren();
    for (const name of of && of.keys.length ? of.keys : [""]) row(name);
    update();
  }

  async function told(path, signal) {
    const got = await fetch(path, { signal });
    const text = await got.text();
    if (!got.ok) throw text.length < 1000 && !text.startsWith("<") ? text : "the page's server refused it (" + got.status + ")";
    return JSON.parse(text);
  }

  // Which columns there are is asked for when somebody begins to ask: the job's text has to be read for it.
  async function look() {
    if (known || !job.answers) return;
    known = new Map();
    try {
      const got = await told("inputs.json");
      for (const one of got.inputs || []) known.set(JSON.stringify([one.query, one.input]), one);
      const has = [...rows.querySelectorAll("input")].some((one) => one.value) || rows.contains(document.activeElement);
      if (has) suggest(known.get(input.value));
      else choose();
    } catch (error) { known = null; }
  }

  function suggest(of) {
    const names = of ? new Set([...of.keys, ...of.columns]) : [];
    columns.replaceChildren(...[...names].map((name) => make("option", { value: name })));
  }

  function say(...children) {
    answer.replaceChildren(...children);
    answer.removeAttribute("aria-busy");
  }

  async function submit(event) {
    event.preventDefault();
    if (asking) { asking.abort(); return; }
    const { query, alias, keys, time: at } = question();
    const asked = new URLSearchParams({ query, input: alias, time: at });
    for (const key of keys) asked.append("key", key);
    if (String(asked).length > 3 * job.max_characters) { say(make("p", { class: "bad" }, "The question is too long: it may have " + plain(job.max_characters) + " characters.")); return; }
    asking = new AbortController();
    ask.textContent = "Stop";
    say(make("p", {}, "The sources are being read again…"));
    answer.setAttribute("aria-busy", "true");
    try {
      const got = await told("why.json?" + asked, asking.signal);
      if (got.problem) say(make("p", { class: "bad" }, got.problem), got.hint ? make("p", {}, make("b", {}, "What to do: "), got.hint) : "");
      else say(...got.answers.flatMap(answered));
    } catch (error) {
      say(make("p", { class: "bad" }, error.name === "AbortError" ? "Stopped." : typeof error === "string" ? "No answer: " + error + "." : "No answer: the job's page does not answer any more."));
    } finally {
      asking = null;
      ask.textContent = "Ask";
    }
  }

  function line(row) {
    return Object.entries(row).map(([name, value]) => name + " " + (value === null ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value))).join(", ");
  }

  function tick(of) { return of ? (of.exact ? "in" : "by") + " tick " + plain(of.number) : ""; }

  function fate(one) {
    const parts = [make("h4", {}, line(one.row))];
    if (one.place) parts.push(make("p", { class: "place" }, "from " + one.place + (one.tick ? ", read " + tick(one.tick) : "")));
    parts.push(make("p", { class: "fate" }, one.text));
    for (const [words, record] of [["by ", one.changed_by], ["instead of ", one.replaces]]) {
      if (record !== null) parts.push(make("p", { class: "place" }, words + line(record.row) + " from " + record.place));
    }
    if (one.matches.length > 1 || one.matches.some((met) => met.filtered_by !== null)) {
      parts.push(make("p", {}, "It met"), make("ul", {}, ...one.matches.map((met) => make("li", {}, line(met.row) + ", " + tick(met.tick) + (met.filtered_by === null ? "" : "; left out by " + met.filtered_by) + (met.retracted_in === null ? "" : ", retracted " + tick(met.retracted_in))))));
    }
    if (one.joined_before.length > 1) {
      parts.push(make("p", {}, "It was joined with"), make("ul", {}, ...one.joined_before.map((met) => make("li", {}, line(met.row) + ", " + tick(met.tick)))));
    }
    if (one.more_matches) parts.push(make("p", {}, "… and others: " + plain(one.more_matches)));
    if (one.near_misses.length) {
      parts.push(make("p", {}, "Nearest, and what kept it from them"), make("ul", { class: "near" }, ...one.near_misses.map((near) =>
        make("li", {}, line(near.row), make("ul", {}, ...near.failed.map((failed) => make("li", {}, failed)))))));
    }
    return make("li", {}, ...parts);
  }

  function answered(one) {
    const heading = make("h3", {}, one.query + ": " + one.input + ", by ticks " + plain(one.ticks[0]) + " to " + plain(one.ticks[1]));
    return [heading, one.rows.length ? make("ul", { class: "fates" }, ...one.rows.map(fate)) : null,
      one.more_rows ? make("p", {}, "… and more rows: " + plain(one.more_rows) + ". Columns, keys and a time say which.") : null,
      ...one.notes.map((note) => make("p", { class: "note" }, "Note: " + note))].filter(Boolean);
  }

  function begin() {
    input = make("select", { id: "why-input" });
    columns = make("datalist", { id: "why-columns" });
    rows = make("div", { class: "rows" });
    time = field("why-time", { placeholder: "2026-03-01 11:00:00" });
    ask = make("button", { type: "submit" }, "Ask");
    command = make("code", { id: "why-command" });
    answer = make("div", { id: "why-answer", role: "status", "aria-live": "polite" });
    const more = make("button", { type: "button" }, "Another column");
    form = make("form", { "aria-label": "What became of a row" }, columns, labelled("Input", input), rows, more,
      labelled("Event time", time, "May be left out, like all of the above: then it is any row, at most 20 of them. UTC, or the job's time zone."),
      job.answers ? ask : make("p", {}, "This page does not know the job's text, and cannot ask. The command below does; and so does a page that is served by ", make("code", {}, job.page), "."),
      make("p", { class: "same" }, job.answers ? "The same as a command: " : "Run ", command));
    form.addEventListener("submit", submit);
    form.addEventListener("focusin", look);
    form.addEventListener("input", update);
    input.addEventListener("change", choose);
    more.addEventListener("click", () => { row(""); rows.lastChild.querySelector("input").focus(); });
    row("");
  }

  // As children of a section; the same ones whenever it is asked for.
  function shown(document_) {
    if (!document_.why || !document_.inputs.length) return [];
    if (!form) { job = document_.why; begin(); }
    const options = document_.inputs.filter((one) => !one.input.startsWith("#")).map((one) => [JSON.stringify([one.query, one.input]), one.name]);
    const there = [...input.options].map((one) => one.value);
    if (options.some(([value], n) => value !== there[n]) || options.length !== there.length) {
      const before = input.value;
      input.replaceChildren(...options.map(([value, name]) => make("option", { value }, name)));
      if (options.some(([value]) => value === before)) input.value = before; else choose();
    }
    return [form, answer];
  }

  // From elsewhere on the page: ask about that input.
  function about(query, alias) {
    input.value = JSON.stringify([query, alias]);
    choose();
    look();
    input.focus();
  }

  return { shown, about };
})();
