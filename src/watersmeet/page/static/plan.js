// The plan as a drawing, with what goes along its edges, and the same as a table.
"use strict";
const plan = (function () {
  const { make, draw, brief, shown, table, width, fitting } = words;
  const LINE = 16, PAD = 8, ROOM = 160;

  // What goes along an edge: rows per second, retained rows, watermarks. ``short``: as far as there is room.
  function written(flow, short) {
    if (!flow) return [];
    const lines = [], marks = (flow.watermarks || []).filter((mark) => mark.value !== null);
    if (flow.rate !== undefined && flow.rate !== null) lines.push(shown("rate", flow.rate));
    if (flow.retained !== undefined && flow.retained !== null) lines.push(shown("rows", flow.retained) + " retained");
    for (const mark of short ? marks.slice(0, 2) : marks) {
      const value = shown(mark.kind, mark.value);
      if (!short) { lines.push("watermark of " + mark.column + " " + value); continue; }
      const value_text = " " + (mark.kind === "time" && mark.value !== "end" ? brief(mark.value / 1e6) : value);
      lines.push(fitting(marks.length > 1 ? mark.column : "watermark", ROOM - width(value_text)) + value_text);
    }
    return lines;
  }

  function node(one, address) {
    const [x, y, width, height] = one.box;
    const text = draw("text", { x: x + PAD, y: y + PAD + 12 }, ...one.lines.map((line, n) =>
      draw("tspan", { x: x + PAD, dy: n ? LINE : 0, class: n ? "" : "name" }, line)));
    const box = draw("rect", { x, y, width, height, rx: one.kind === "stored" ? 14 : 4 });
    const title = draw("title", {}, one.whole.join("\n"));
    const inside = [title, box, text];
    if (!one.input) return draw("g", { class: "node " + one.kind }, ...inside);
    const link = draw("a", { href: address(one.input), class: "node " + one.kind, "aria-label": "input " + one.input + ": its partitions" }, ...inside);
    return link;
  }

  let view, hint, made = ""; // the drawing, and of which plan
  let labels = []; // of its edges: where they stand, and their elements

  function edge(one) {
    const [x1, y1] = one.begin, [x2, y2] = one.end, flat = x2 - ROOM - 14, half = (flat - x1) / 2;
    // it is level where something is written above it
    const line = draw("path", { d: `M${x1} ${y1} C${x1 + half} ${y1} ${flat - half} ${y2} ${flat} ${y2} H${x2 - 6}`, class: one.of ? "" : "asked" });
    const tip = draw("path", { d: `M${x2} ${y2} l-8 -4 v8 z`, class: "tip" });
    const label = draw("text", { "text-anchor": "end", class: "flow" });
    labels.push({ of: one.of, x: x2 - 12, y: y2 - 6, label });
    return draw("g", { class: "edge" }, line, tip);
  }

  // As children of a section. ``address``: of what the page says of an input.
  function shownPlan(drawing, flows, address) {
    if (!drawing.nodes.length) return [];
    const key = JSON.stringify(drawing);
    if (made !== key) {
      made = key;
      labels = [];
      hint = make("p", { class: "hint", id: "plan-hint", hidden: "" }, "The diagram is wider than the page: scroll it sideways, by the arrow keys too.");
      view = make("div", { class: "scroll plan", tabindex: "0", role: "region", "aria-label": "Diagram of the plan", "aria-describedby": "plan-hint" }, draw("svg",
        { width: drawing.width, height: drawing.height, viewBox: `0 0 ${drawing.width} ${drawing.height}`, role: "group", "aria-label": "The plan; the table below says the same" },
        ...drawing.edges.map(edge), ...labels.map((one) => one.label), ...drawing.nodes.map((one) => node(one, address))));
      new ResizeObserver(() => { hint.hidden = view.scrollWidth <= view.clientWidth; }).observe(view);
    }
    for (const { of, x, y, label } of labels) {
      const lines = written(flows[of], true);
      label.replaceChildren(...lines.map((text, n) => draw("tspan", { x, y: y - 14 * (lines.length - 1 - n) }, text)));
    }
    const names = new Map(drawing.nodes.map((one) => [one.id, one.input ? "input " + one.input : one.whole[0]]));
    const rows = drawing.edges.map((one) => [names.get(one.from), names.get(one.to), written(flows[one.of], false).join(", ") || "–"]);
    return [
      hint, view,
      make("details", {}, make("summary", {}, "As a table"), table(["from", "to", "flow"], rows)),
    ];
  }

  return { shown: shownPlan };
})();
