// The page /docs: the operations of /openapi.json, with examples, and a form for each that sends a request to this Drover.
(async () => {
  const make = (tag, props, ...inner) => {
    const element = Object.assign(document.createElement(tag), props);
    element.append(...inner.filter((part) => part !== undefined && part !== ""));
    return element;
  };
  const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
  const out = document.getElementById("operations");
  const answer = await fetch("/openapi.json").catch(() => undefined);
  if (!answer?.ok) { out.textContent = "The document cannot be read now."; return; }
  const api = await answer.json();

  // A schema with its references filled in, to a depth that people read.
  const filled = (schema, depth = 0) => {
    if (schema?.$ref) {
      const name = schema.$ref.split("/").pop();
      return depth > 3 ? `(${name})` : filled(api.components.schemas[name], depth + 1);
    }
    if (Array.isArray(schema)) return schema.map((inner) => filled(inner, depth));
    if (schema === null || typeof schema !== "object") return schema;
    return Object.fromEntries(Object.entries(schema).map(([name, inner]) => [name, filled(inner, depth)]));
  };
  const folded = (title, value) => {
    const details = make("details", {}, make("summary", {}, title));
    // Most are never opened.
    details.addEventListener("toggle", () => { if (details.children.length === 1) details.append(make("pre", { textContent: pretty(value()), tabIndex: 0 })); });
    return details;
  };

  const field = (parameter) => {
    const words = parameter.schema?.enum;
    const input = words ? make("select", {}, make("option", { value: "" }, ""), ...words.map((word) => make("option", { value: word }, word))) : make("input", { autocomplete: "off" });
    Object.assign(input, { name: parameter.name, required: Boolean(parameter.required), title: parameter.description ?? "" });
    if (parameter.in === "path") input.value = parameter.example ?? "";
    return make("label", {}, `${parameter.name}${parameter.required ? "" : " (optional)"}, ${parameter.in}`, input);
  };

  // What the form asks for: address, headers and body.
  const request = (form, path, operation) => {
    let at = path;
    const query = new URLSearchParams();
    const headers = { accept: "application/json" };
    for (const parameter of operation.parameters ?? []) {
      const { value } = form.elements[parameter.name];
      if (parameter.in === "path") at = at.replace(`{${parameter.name}}`, encodeURIComponent(value));
      else if (value !== "" && parameter.in === "query") query.set(parameter.name, value);
      else if (value !== "") headers[parameter.name.toLowerCase()] = value;
    }
    const body = form.elements.body?.value || undefined;
    if (body) headers["content-type"] = "application/json";
    return { address: at + (query.size ? `?${query}` : ""), headers, body };
  };
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const curl = (method, { address, headers, body }) => ["curl", method === "get" ? "" : `-X ${method.toUpperCase()}`, '-H "Authorization: Bearer $DROVER_TOKEN"',
    ...Object.entries(headers).filter(([name]) => name !== "accept").map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`),
    body ? `-d ${quoted(body)}` : "", quoted(window.location.origin + address)].filter(Boolean).join(" ");

  const sent = async (method, asked, shown) => {
    shown.textContent = "…";
    const stop = new AbortController();
    // A stream of events never ends; its beginning is shown.
    const timer = setTimeout(() => stop.abort(), 65000);
    try {
      const got = await fetch(asked.address, { method: method.toUpperCase(), headers: asked.headers, body: asked.body, signal: stop.signal });
      const kept = ["etag", "location", "warning", "link", "preference-applied", "deprecation"].filter((name) => got.headers.has(name));
      let text;
      if ((got.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
        const { value } = await got.body.getReader().read();
        text = `${new TextDecoder().decode(value)}\n(and so on)`;
        stop.abort();
      } else {
        text = await got.text();
        try { text = pretty(JSON.parse(text)); } catch { /* it is no JSON */ }
      }
      shown.textContent = [`${got.status} ${got.statusText}`, ...kept.map((name) => `${name}: ${got.headers.get(name)}`), "", text].join("\n");
    } catch (error) { shown.textContent = `No answer: ${error.message}`; }
    clearTimeout(timer);
  };

  const inside = (path, method, operation) => {
    const media = operation.requestBody?.content?.["application/json"];
    const parameters = operation.parameters ?? [];
    const form = make("form", {}, make("div", { className: "fields" }, ...parameters.map(field)));
    if (media) form.append(make("h3", {}, "Body"), make("textarea", { name: "body", value: media.example ? pretty(media.example) : "", spellcheck: false, ariaLabel: "Body" }));
    const shown = make("pre", { className: "answer", hidden: true, role: "status", tabIndex: 0 });
    const line = make("pre", { hidden: true, tabIndex: 0 });
    const show = make("button", { type: "button" }, "curl");
    show.addEventListener("click", () => { line.hidden = false; line.textContent = curl(method, request(form, path, operation)); });
    form.append(make("div", { className: "actions" }, make("button", { type: "submit" }, "Send"), show), line, shown);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      shown.hidden = false;
      sent(method, request(form, path, operation), shown);
    });
    const part = make("div", { className: "inside" }, make("p", {}, operation.description ?? ""), form);
    if (media) part.append(folded("What the body may have", () => filled(media.schema)));
    for (const [status, response] of Object.entries(operation.responses)) {
      if (status === "default") continue;
      const [kind, content] = Object.entries(response.content ?? {})[0] ?? [];
      part.append(make("h3", {}, `${status}: ${response.description ?? ""}`));
      if (content?.example !== undefined) part.append(folded("Example of the answer", () => content.example));
      if (content) part.append(folded(`What the answer has (${kind})`, () => filled(content.schema)));
    }
    const problems = Object.entries(operation.responses.default?.content?.["application/problem+json"]?.examples ?? {});
    if (problems.length) part.append(make("h3", {}, "Errors"));
    for (const [code, example] of problems) {
      // What every operation can answer is kept once.
      const { value } = example.$ref ? api.components.examples[example.$ref.split("/").pop()] : example;
      const page = make("p", {}, make("a", { href: `/docs/errors/${code}` }, code), ` ${value.status}: ${value.detail}`);
      part.append(page);
    }
    return part;
  };

  out.textContent = "";
  const tags = document.getElementById("tags");
  const all = Object.entries(api.paths).flatMap(([path, item]) => Object.entries(item).map(([method, operation]) => ({ path, method, operation })));
  const shown = [];
  for (const { name, description } of api.tags) {
    const section = make("section", { id: `tag-${name}` }, make("h2", {}, name), make("p", {}, description ?? ""));
    for (const { path, method, operation } of all.filter((one) => one.operation.tags?.[0] === name)) {
      const details = make("details", { className: `operation ${method}`, id: operation.operationId },
        make("summary", {}, make("b", {}, method.toUpperCase()), make("code", {}, path), make("span", {}, (operation.deprecated ? "deprecated; " : "") + operation.summary)));
      details.addEventListener("toggle", () => { if (details.open && details.children.length === 1) details.append(inside(path, method, operation)); });
      section.append(details);
      shown.push({ details, section, text: `${method} ${path} ${operation.operationId} ${operation.summary} ${operation.description}`.toLowerCase() });
    }
    tags.append(make("a", { href: `#tag-${name}` }, name));
    out.append(section);
  }
  out.ariaBusy = "false";

  const find = document.getElementById("find");
  const filter = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const one of shown) one.details.hidden = !words.every((word) => one.text.includes(word));
    for (const section of out.children) section.hidden = ![...section.querySelectorAll("details.operation")].some((details) => !details.hidden);
  };
  find.addEventListener("input", filter);
  find.form.addEventListener("submit", (event) => event.preventDefault());
  const open = () => {
    const target = document.getElementById(decodeURIComponent(window.location.hash.slice(1)));
    if (target?.tagName === "DETAILS") target.open = true;
    target?.scrollIntoView();
  };
  window.addEventListener("hashchange", open);
  if (window.location.hash) open();
})();
