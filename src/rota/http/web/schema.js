// Schemas as trees of fields. A part that has parts of its own is drawn when it is opened, so a form may contain itself.

import { make, words } from "./dom.js";

const MARKS = [
  ["minimum", "≥"], ["exclusiveMinimum", ">"], ["maximum", "≤"], ["exclusiveMaximum", "<"],
  ["minLength", "length ≥"], ["maxLength", "length ≤"], ["minItems", "items ≥"], ["maxItems", "items ≤"],
];

export class Schemas {
  constructor(document) {
    this.document = document;
  }

  // What a reference leads to.
  resolve(said) {
    if (!said || !said.$ref) return said ?? {};
    const found = said.$ref.slice(2).split("/").reduce((at, key) => at[key.replaceAll("~1", "/")], this.document);
    const { $ref, ...beside } = said;
    return { ...this.resolve(found), ...beside };
  }

  // A type in a few words.
  kind(schema) {
    if (schema.$ref) return schema.$ref.split("/").pop();
    const options = schema.anyOf ?? schema.oneOf;
    if (options) return options.map((each) => this.kind(each)).join(" | ");
    if (schema.allOf) return this.kind(schema.allOf[0]);
    if (schema.const !== undefined) return JSON.stringify(schema.const);
    if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
    const type = [schema.type ?? "anything"].flat().join(" | ");
    if (schema.items) return `${type} of ${this.kind(schema.items)}`;
    if (schema.additionalProperties && typeof schema.additionalProperties === "object")
      return `${type} of ${this.kind(schema.additionalProperties)}`;
    return schema.format ? `${type} (${schema.format})` : type;
  }

  marks(schema) {
    const said = MARKS.filter(([key]) => schema[key] !== undefined).map(([key, sign]) => `${sign} ${schema[key]}`);
    if (schema.pattern) said.push(`matches ${schema.pattern}`);
    if (schema.default !== undefined && schema.default !== null) said.push(`default ${JSON.stringify(schema.default)}`);
    return said.join(", ");
  }

  // The forms that a schema has inside.
  inner(schema) {
    const parts = [schema, ...(schema.anyOf ?? schema.oneOf ?? schema.allOf ?? [])];
    const found = [];
    for (const part of parts) {
      for (const each of [part, part.items, part.additionalProperties]) {
        if (!each || typeof each !== "object") continue;
        if (this.resolve(each).properties) found.push(each);
        else if (each !== part && (each.items || each.anyOf || each.additionalProperties)) found.push(...this.inner(each));
      }
    }
    return found;
  }

  fields(schema) {
    const form = this.resolve(schema);
    const required = new Set(form.required ?? []);
    // What refuses unknown fields is sent, and may leave out most; everything else is answered, and leaves out little.
    const isSent = form.additionalProperties === false;
    const mark = (name) => (required.has(name) === isSent ? (isSent ? " required" : " may be left out") : "");
    const list = Object.entries(form.properties ?? {}).map(([name, said]) => this.field(name, said, mark(name)));
    return make("ul", { class: "fields" }, list);
  }

  field(name, said, mark) {
    const head = [make("code", {}, name), " ", make("span", { class: "kind" }, this.kind(said))];
    if (mark) head.push(make("span", { class: "must" }, mark));
    const marks = this.marks(said);
    const below = [said.description ? make("div", { class: "words" }, words(said.description)) : null,
      marks ? make("div", { class: "kind" }, marks) : null];
    const inner = this.inner(said);
    if (!inner.length) return make("li", {}, head, below);
    return make("li", {}, this.part(head, inner), below);
  }

  part(head, forms) {
    const part = make("details", { class: "part" }, make("summary", {}, head));
    part.addEventListener("toggle", () => {
      if (part.open && part.children.length === 1) part.append(...forms.map((form) => this.fields(form)));
    });
    return part;
  }

  // The whole of a body or an answer.
  tree(schema) {
    const forms = this.inner(schema);
    const name = make("span", { class: "kind" }, this.kind(schema));
    return forms.length ? this.part([name], forms) : make("p", {}, name);
  }
}
