// The page about the API, made from /openapi.json. The token is kept in its field alone: it is gone with the page.

import { make, prose, words } from "./dom.js";
import { Trial } from "./request.js";
import { Schemas } from "./schema.js";

const byId = (id) => document.getElementById(id);
const token = () => byId("token").value.trim();

// One operation: its head always, the rest when it is opened.
class Operation {
  constructor(method, path, said, schemas) {
    Object.assign(this, { method, path, said, schemas });
    this.id = said.operationId;
    this.text = `${method} ${path} ${said.summary} ${said.operationId} ${said.tags.join(" ")}`.toLowerCase();
    this.link = make("a", { href: `#${this.id}`, title: `${method.toUpperCase()} ${path}` }, badge(method), make("span", { class: this.dead }, words(said.summary)));
    this.entry = make("li", {}, this.link);
    this.element = make("details", { class: "operation", id: this.id },
      make("summary", {}, badge(method), make("span", { class: `path ${this.dead}` }, path),
        make("span", { class: "said" }, words(said.summary))));
    this.element.addEventListener("toggle", () => this.element.open && this.fill());
  }

  get dead() {
    return this.said.deprecated ? "deprecated" : "";
  }

  fill() {
    if (this.element.children.length > 1) return;
    const { said, schemas } = this;
    this.element.append(make("div", { class: "inside" },
      said.deprecated ? make("p", { class: "status bad" }, "Deprecated: use what the description names.") : null,
      prose(said.description),
      this.parameters(),
      said.requestBody ? [make("h3", {}, "Body"), this.content(said.requestBody.content)] : null,
      this.answers(),
      this.problems(),
      new Trial(this.method, this.path, said, schemas, token).element()));
  }

  parameters() {
    const all = (this.said.parameters ?? []).map((each) => this.schemas.resolve(each));
    if (!all.length) return null;
    const rows = all.map((each) => {
      const schema = this.schemas.resolve(each.schema);
      return make("tr", {},
        make("td", {}, make("code", { class: each.deprecated ? "deprecated" : "" }, each.name),
          make("div", { class: "kind" }, each.in), each.required ? make("div", { class: "must" }, "required") : null),
        make("td", {}, words(each.description),
          make("div", { class: "kind" }, [this.schemas.kind(schema), this.schemas.marks(schema)].filter(Boolean).join(", "))));
    });
    return [make("h3", {}, "Parameters"),
      make("div", { class: "scroll" }, make("table", {}, make("tbody", {}, rows)))];
  }

  content(content) {
    return Object.entries(content).map(([media, { schema, example, examples }]) => {
      const shown = example === undefined ? Object.values(examples ?? {}).map((each) => each.value) : [example];
      return make("div", {},
        media === "application/json" ? null : make("p", {}, make("code", {}, media)),
        schema && Object.keys(schema).length ? this.schemas.tree(schema) : null,
        shown.map((each) => make("details", { class: "part" }, make("summary", {}, "Example"),
          make("pre", { tabindex: "0" }, typeof each === "string" ? each : JSON.stringify(each, null, 2)))));
    });
  }

  answers() {
    return Object.entries(this.said.responses).filter(([status]) => status < 400).map(([status, answer]) => [
      make("h3", {}, make("span", { class: "status good" }, status), ` ${answer.description}`),
      this.content(answer.content ?? {}), this.headers(answer)]);
  }

  headers(answer) {
    const all = Object.entries(answer.headers ?? {});
    if (!all.length) return null;
    return make("ul", { class: "fields" }, all.map(([name, said]) =>
      make("li", {}, make("code", {}, name), " ", make("span", { class: "kind" }, "header"), make("div", {}, words(this.schemas.resolve(said).description)))));
  }

  problems() {
    const all = Object.entries(this.said.responses).filter(([status]) => !(status < 400)).flatMap(([, answer]) => {
      const examples = this.schemas.resolve(answer).content?.["application/problem+json"]?.examples ?? {};
      return Object.entries(examples).map(([code, { summary, value }]) => ({ code, summary, status: value.status }));
    });
    if (!all.length) return null;
    const rows = all.sort((one, other) => one.status - other.status).map(({ code, summary, status }) =>
      make("tr", {}, make("td", {}, String(status)),
        make("td", {}, make("a", { href: `/problems/${code}` }, make("code", {}, code))), make("td", {}, summary)));
    return make("details", { class: "part" }, make("summary", {}, make("strong", {}, "Problems")),
      make("div", { class: "scroll" }, make("table", {}, make("tbody", {}, rows))));
  }
}

function badge(method) {
  return make("span", { class: `method ${method}` }, method);
}

function draw(api) {
  const schemas = new Schemas(api);
  const all = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, said]) => new Operation(method, path, said, schemas)));
  const parts = api.tags.map((tag) => {
    const own = all.filter((each) => each.said.tags.includes(tag.name));
    const listed = make("section", {}, make("h2", {}, tag.name), make("ul", {}, own.map((each) => each.entry)));
    const shown = make("section", {}, make("h2", {}, tag.name), make("p", { class: "quiet" }, words(tag.description)),
      own.map((each) => each.element));
    return { own, listed, shown };
  });
  byId("version").textContent = api.info.version;
  byId("list").replaceChildren(...parts.map((part) => part.listed));
  byId("content").replaceChildren(make("h1", {}, `${api.info.title} · the API`), ...prose(api.info.description),
    make("p", {}, make("a", { href: "/openapi.json" }, "The document"), " · ", make("a", { href: "/problems" }, "Problems")),
    ...parts.map((part) => part.shown));
  return { all, parts };
}

function search({ all, parts }) {
  const asked = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const each of all) {
    const fits = asked.every((word) => each.text.includes(word));
    each.entry.hidden = each.element.hidden = !fits;
    count += fits;
  }
  for (const { own, listed, shown } of parts) listed.hidden = shown.hidden = own.every((each) => each.entry.hidden);
  document.querySelector("nav").classList.toggle("searching", asked.length > 0);
  byId("found").textContent = asked.length ? `${count} of ${all.length}` : "";
}

// The address names the operation that is open, so that it can be passed on.
function follow({ all }) {
  const chosen = all.find((each) => each.id === location.hash.slice(1));
  for (const each of all) each.link.toggleAttribute("aria-current", each === chosen);
  if (!chosen) return;
  chosen.element.open = true;
  chosen.fill();
  chosen.element.scrollIntoView();
}

function onKey(event) {
  const isTyping = /^(input|textarea|select)$/i.test(event.target.tagName);
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    byId("search").focus();
  } else if (event.key === "Escape" && event.target === byId("search")) {
    byId("search").value = "";
    byId("search").dispatchEvent(new Event("input"));
  }
}

async function begin() {
  const response = await fetch("/openapi.json");
  if (!response.ok) throw new Error(`/openapi.json was answered with ${response.status}`);
  const drawn = draw(await response.json());
  byId("search").addEventListener("input", () => search(drawn));
  addEventListener("hashchange", () => follow(drawn));
  addEventListener("keydown", onKey);
  follow(drawn);
}

begin().catch((error) => byId("content").replaceChildren(make("p", { class: "status bad" }, `${error.message}`)));
