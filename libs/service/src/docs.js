// Lists the operations of an OpenAPI document, whose address is in <main data-document>.
const make = (tag, text, ...inner) => { const e = document.createElement(tag); if (text) e.textContent = text; e.append(...inner); return e; };
const shape = (schema) => make("pre", JSON.stringify(schema, null, 1));
fetch(document.getElementById("out").dataset.document).then((r) => r.json()).then((doc) => {
  document.getElementById("title").textContent = doc.info.title;
  document.title = doc.info.title;
  const out = document.getElementById("out");
  out.textContent = "";
  for (const tag of doc.tags || [])
    if (tag.externalDocs) out.append(make("p", "", Object.assign(make("a", tag.name), { href: tag.externalDocs.url }), " ", tag.description || ""));
  const tags = new Map();
  for (const [path, item] of Object.entries(doc.paths))
    for (const [method, op] of Object.entries(item))
      if (op.responses) { const tag = (op.tags || ["other"])[0]; tags.set(tag, [...(tags.get(tag) || []), [method, path, op]]); }
  // In the order of the document's list of tags, then the others.
  const listed = (doc.tags || []).map((tag) => tag.name);
  const place = (tag) => (listed.indexOf(tag) + 1 || listed.length + 1);
  for (const [tag, ops] of [...tags].sort(([a], [b]) => place(a) - place(b) || a.localeCompare(b))) {
    out.append(make("h2", tag), make("p", (doc.tags || []).find((known) => known.name === tag)?.description));
    for (const [method, path, op] of ops) {
      const body = make("div");
      if (op.description) body.append(make("p", op.description));
      if (op.parameters) body.append(make("p", "Parameters: " + op.parameters.map((p) => p.name + (p.required ? "" : "?") + " (" + p.in + ")").join(", ")));
      for (const [type, c] of Object.entries(op.requestBody?.content || {})) body.append(make("p", "Body " + type), shape(c.schema));
      for (const [status, r] of Object.entries(op.responses)) {
        body.append(make("p", status + ": " + (r.description || "")));
        if (status !== "default") for (const c of Object.values(r.content || {})) body.append(shape(c.schema));
      }
      const head = make("summary", "", Object.assign(make("b", method.toUpperCase()), { className: "m" }), make("code", path), " ", make("small", op.summary || op.operationId));
      out.append(make("details", "", head, body));
    }
  }
  out.append(make("h2", "Schemas"));
  for (const [name, schema] of Object.entries(doc.components?.schemas || {})) out.append(make("details", "", make("summary", name), shape(schema)));
}).catch((error) => { document.getElementById("out").textContent = "The document cannot be read: " + error; });
