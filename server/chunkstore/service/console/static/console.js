// Shows how one answer of RetrieveChunks came about. Whatever is stored is shown as text: nodes, never markup.

const CHANNELS = ["semantic", "lexical", "identifier"];
const COLUMNS = ["semantic", "fused", "lexical", "identifier"];
// Of each channel's own best, so many are shown although the answer lacks them, where so many chunks after it tell of them.
const OWN_BEST = 3;
const CHUNKS_AFTER = 60;
const INPUTS = { "x-tenant-id": "tenant", "fusion.method": "fusion" };

const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

async function retrieve(tenant, request) {
  const response = await fetch("retrieve", {
    method: "POST",
    headers: { "content-type": "application/json", "x-tenant-id": tenant },
    body: JSON.stringify(request),
  });
  const content = await response.json();
  if (!response.ok) throw Object.assign(new Error(content.message), content);
  return content;
}

let latest = 0;

async function ask() {
  const asked = ++latest;
  const request = {
    query: byId("query").value,
    k: byId("k").valueAsNumber,
    mode: byId("mode").value,
    fusion: { method: byId("fusion").value },
  };
  clear();
  byId("state").textContent = "Retrieving …";
  try {
    const answer = await retrieve(byId("tenant").value, { ...request, explain: true });
    const after = answer.next_page_token ? await chunksAfter(answer, request) : [];
    if (asked === latest) show(answer, after);
  } catch (error) {
    if (asked === latest) showError(error);
  }
}

async function chunksAfter(answer, request) {
  const next = { ...request, k: CHUNKS_AFTER, page_token: answer.next_page_token };
  try {
    return (await retrieve(byId("tenant").value, next)).chunks;
  } catch {
    // The rankings then show the answer alone: a corpus that changes meanwhile has no next page.
    return [];
  }
}

function clear() {
  for (const id of ["state", "error", "partial"]) byId(id).textContent = "";
  for (const input of document.querySelectorAll("[aria-invalid]")) {
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  }
  byId("answer").hidden = true;
}

function showError(error) {
  byId("state").textContent = "";
  byId("error").textContent = error.code
    ? `${error.code}${error.reason && ` (${error.reason})`}: ${error.message}`
    : "The server does not answer.";
  const input = byId(INPUTS[error.field] ?? error.field);
  if (!input?.matches("input, select")) return;
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-describedby", "error");
  input.focus();
}

function show(answer, after) {
  const { chunks, chunk_count: total, embedded_count: embedded } = answer;
  byId("state").textContent =
    `${chunks.length} ${chunks.length === 1 ? "chunk" : "chunks"}, of ${total} at revision ${answer.revision}; ` +
    `${embedded} of ${total} embedded.`;
  const missing = answer.channels.filter(isMissing).map((report) => `${nameOf(report)} ${stateOf(report)}`);
  byId("partial").textContent = answer.partial
    ? `Partial answer: the ranking lacks the opinion of a channel. ${missing.join("; ")}.`
    : "";
  byId("answer").hidden = false;
  byId("channels").replaceChildren(
    row("th", "Channel", "State", "Candidates", "Elapsed", "Can rank"),
    ...answer.channels.map(channelRow),
  );
  byId("passages").replaceChildren(...chunks.map(passage));
  showRankings(answer, after);
}

const words = (name, prefix) => name.slice(prefix.length).toLowerCase().replaceAll("_", " ");
const nameOf = (report) => words(report.channel, "CHANNEL_");
const isMissing = (report) => !/_(ANSWERED|NOT_REQUESTED)$/.test(report.status);
const stateOf = (report) => words(report.status, "CHANNEL_STATUS_") + (report.reason && ` (${report.reason})`);
const rounded = (number) => Number(number.toPrecision(5)).toString();
const titleOf = ({ chunk }) => `${chunk.source_id} #${chunk.chunk_index}`;

function row(tag, ...cells) {
  return element("tr", {}, ...cells.map((cell) => (cell instanceof Node ? cell : element(tag, {}, cell))));
}

function channelRow(report) {
  const name = nameOf(report);
  return row(
    "td",
    element("th", { scope: "row", class: name }, name),
    element("td", isMissing(report) ? { class: "missing" } : {}, stateOf(report)),
    String(report.candidates),
    report.elapsed ? `${(parseFloat(report.elapsed) * 1000).toFixed(1)} ms` : "",
    report.rankable_count === undefined ? "" : `${report.rankable_count} of ${report.chunk_count}`,
  );
}

// --- rankings ---

function showRankings(answer, after) {
  const asked = answer.channels.filter((report) => !report.status.endsWith("NOT_REQUESTED")).map(nameOf);
  const missing = new Map(answer.channels.filter(isMissing).map((report) => [nameOf(report), stateOf(report)]));
  const inAnswer = new Map(answer.chunks.map((hit, index) => [hit.chunk.id, { ...hit, fused_rank: index + 1 }]));
  const hits = [...inAnswer.values(), ...after];
  const columns = COLUMNS.filter((name) => name === "fused" || asked.includes(name)).map((name) => {
    const shown = hits
      .filter((hit) => hit[`${name}_rank`] && (inAnswer.has(hit.chunk.id) || hit[`${name}_rank`] <= OWN_BEST))
      .sort((one, other) => one[`${name}_rank`] - other[`${name}_rank`]);
    const title = name === "fused" && answer.partial ? "fused · PARTIAL" : name;
    return element(
      "section", { class: `column ${name}`, "aria-label": `${name} ranking` },
      element("h3", { class: name }, title),
      element("ol", {}, ...shown.map((hit) => element("li", {}, entry(hit, name, inAnswer.has(hit.chunk.id))))),
      shown.length ? "" : missing.get(name) ?? "nothing ranked",
    );
  });
  byId("rankings").replaceChildren(document.createElementNS("http://www.w3.org/2000/svg", "svg"), ...columns);
  pick(null);
  drawLines();
}

function entry(hit, name, inAnswer) {
  const rank = hit[`${name}_rank`];
  const score = rounded(name === "fused" ? hit.score : hit[name]);
  const said = `${name} rank ${rank}: ${titleOf(hit)}, score ${score}${inAnswer ? "" : ", not in the answer"}`;
  const button = element(
    "button", { type: "button", "data-id": hit.chunk.id, "aria-label": said, class: inAnswer ? "" : "outside" },
    element("span", {}, String(rank)), element("span", {}, titleOf(hit)), element("span", { class: "score" }, score),
  );
  for (const event of ["pointerenter", "focus"]) button.addEventListener(event, () => pick(hit, button));
  for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => pick(null));
  button.addEventListener("click", () => byId(`passage-${hit.chunk.id}`)?.focus());
  button.hit = hit;
  return button;
}

function drawLines() {
  const svg = document.querySelector("#rankings > svg");
  if (!svg) return;
  const origin = svg.getBoundingClientRect();
  const fused = [...document.querySelectorAll(".column.fused button")];
  svg.setAttribute("aria-hidden", "true");
  svg.replaceChildren(
    ...CHANNELS.flatMap((name) => fused.map((button) => line(name, button, origin)).filter(Boolean)),
  );
}

function line(name, fused, origin) {
  const id = fused.dataset.id;
  const own = document.querySelector(`.column.${name} [data-id="${id}"]`);
  if (!own) return null;
  const [left, right] = [own, fused].map((node) => node.getBoundingClientRect()).sort((a, b) => a.left - b.left);
  const [x1, y1] = [left.right - origin.left, left.top + left.height / 2 - origin.top];
  const [x2, y2] = [right.left - origin.left, right.top + right.height / 2 - origin.top];
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", `M${x1} ${y1} C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`);
  // As wide as the part of the fused score that the channel gives.
  path.setAttribute("stroke-width", String(1 + (4 * fused.hit[`${name}_share`]) / (fused.hit.score || 1)));
  path.setAttribute("class", name);
  path.dataset.id = id;
  return path;
}

function pick(hit, button) {
  byId("rankings").classList.toggle("picking", hit !== null);
  for (const node of document.querySelectorAll("#rankings [data-id]")) {
    node.classList.toggle("picked", node.dataset.id === hit?.chunk.id);
  }
  byId("detail").hidden = hit === null;
  byId("detail").classList.remove("above");
  if (hit === null) return;
  const opinions = CHANNELS.map((name) => {
    const head = element("th", { scope: "row", class: name }, name);
    if (hit[name] === undefined) return row("td", head, "not ranked", "", "");
    return row("td", head, String(hit[`${name}_rank`]), rounded(hit[name]), rounded(hit[`${name}_share`]));
  });
  const fused = element("th", { scope: "row", class: "fused" }, "fused");
  const rank = hit.fused_rank ? String(hit.fused_rank) : "not in the answer";
  byId("detail").replaceChildren(
    element("h3", {}, titleOf(hit)),
    element("table", {}, row("th", "", "Rank", "Score", "Share"), ...opinions,
      row("td", fused, rank, "", rounded(hit.score))),
  );
  const covered = button.getBoundingClientRect().bottom > byId("detail").getBoundingClientRect().top;
  byId("detail").classList.toggle("above", covered);
}

// --- passages ---

function passage(hit, index) {
  const { terms = [], identifiers = [] } = hit.explanation ?? {};
  const found = [...terms, ...identifiers].filter((term) => term.frequency > 0);
  const said = terms
    .filter((term) => term.frequency > 0)
    .map((term) => `${term.term} ×${term.frequency}, in ${term.document_frequency} chunks, gives ${rounded(term.share)}`);
  return element(
    "li", { id: `passage-${hit.chunk.id}`, tabindex: "-1" },
    element("h3", {}, `${index + 1} · ${titleOf(hit)} · ${rounded(hit.score)}`),
    element("p", {}, ...highlighted(hit.chunk.text, found.flatMap((term) => term.spans))),
    element("small", {}, said.length ? said.join("; ") : "holds no term of the query"),
  );
}

function highlighted(text, spans) {
  // Spans count code points, strings of JavaScript UTF-16 units.
  const points = Array.from(text);
  const pieces = [];
  let end = 0;
  for (const span of [...spans].sort((one, other) => one.start - other.start)) {
    if (span.end <= end) continue;
    const start = Math.max(span.start, end);
    pieces.push(points.slice(end, start).join(""), element("mark", {}, points.slice(start, span.end).join("")));
    end = span.end;
  }
  return [...pieces, points.slice(end).join("")];
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
new ResizeObserver(drawLines).observe(byId("rankings"));
