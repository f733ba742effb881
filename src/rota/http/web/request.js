// Trying an operation: what is asked for, the same as a curl command, and what came of it.

import { copyButton, make } from "./dom.js";

const MOST_SHOWN = 200_000;
const SOCKET = '--unix-socket "$ROTA_HOME/rota.sock" http://rota';

export class Trial {
  constructor(method, path, operation, schemas, token) {
    this.method = method.toUpperCase();
    this.path = path;
    this.token = token;
    this.schemas = schemas;
    this.parameters = (operation.parameters ?? []).map((each) => schemas.resolve(each));
    this.inputs = new Map();
    this.answer = make("div", { "aria-live": "polite" });
    const content = operation.requestBody?.content["application/json"];
    this.body = content ? make("textarea", { spellcheck: "false", "aria-label": "Body" }) : null;
    if (content?.example !== undefined) this.body.value = JSON.stringify(content.example, null, 2);
    this.isOptional = operation.requestBody?.required === false;
  }

  element() {
    const asked = this.parameters.map((parameter) => this.asked(parameter));
    this.send = make("button", { type: "submit", class: "main" }, "Send");
    this.stop = make("button", { type: "button", disabled: true, onclick: () => this.aborter?.abort() }, "Stop");
    this.socketCommand = make("pre");
    this.tcpCommand = make("pre");
    const form = make("form", { class: "try", onsubmit: (event) => this.submit(event), oninput: () => this.show() },
      make("h3", {}, "Try it"),
      asked,
      this.body ? make("div", {}, make("h3", {}, this.isOptional ? "Body (may be left out)" : "Body"), this.body) : null,
      make("div", { class: "row" }, this.send, this.stop,
        make("span", { class: "quiet" }, this.method === "GET" ? "" : "This is sent for real.")),
      make("h3", {}, "As a command, over the socket"),
      make("div", { class: "command" }, this.socketCommand, copyButton(() => this.socketCommand.textContent)),
      make("h3", {}, "As a command, over TCP"),
      make("div", { class: "command" }, this.tcpCommand, copyButton(() => this.tcpCommand.textContent)),
      this.answer);
    this.show();
    return form;
  }

  asked(parameter) {
    const id = `try-${this.method}-${this.path}-${parameter.name}`;
    const schema = this.schemas.resolve(parameter.schema);
    const choices = schema.enum ?? (schema.type === "boolean" ? [true, false] : null);
    const isPlace = parameter.in === "path";
    const input = choices
      ? make("select", { id }, isPlace ? [] : make("option", { value: "" }, ""),
        choices.map((each) => make("option", { value: String(each) }, String(each))))
      : make("input", { id, required: isPlace, placeholder: parameter.example ?? (schema.type === "array" ? "a, b" : "") });
    if (isPlace && !choices) input.value = parameter.example ?? "";
    this.inputs.set(parameter, input);
    return make("div", { class: "asked" },
      make("label", { for: id }, make("code", {}, parameter.name), make("span", { class: "kind" }, ` ${parameter.in}`)), input);
  }

  // What would be sent, as things are now.
  request() {
    let path = this.path;
    const query = new URLSearchParams();
    const headers = {};
    for (const [parameter, input] of this.inputs) {
      const value = input.value.trim();
      if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, escaped(value));
      else if (value === "") continue;
      else if (parameter.in === "header") headers[parameter.name] = value;
      else if (this.schemas.resolve(parameter.schema).type === "array")
        value.split(",").forEach((each) => query.append(parameter.name, each.trim()));
      else query.append(parameter.name, value);
    }
    const body = this.body && this.body.value.trim() !== "" ? this.body.value : undefined;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    return { target: path + (query.size ? `?${query}` : ""), headers, body };
  }

  show() {
    this.socketCommand.textContent = this.command(SOCKET);
    this.tcpCommand.textContent = this.command(location.origin, ' \\\n  -H "Authorization: Bearer $(rota token)"');
  }

  command(where, more = "") {
    const { target, headers, body } = this.request();
    const method = this.method === "GET" || (this.method === "POST" && body !== undefined) ? "" : ` -X ${this.method}`;
    const [last, ...first] = where.split(" ").reverse();
    const said = Object.entries(headers).map(([name, value]) => ` \\\n  -H ${quoted(`${name}: ${value}`)}`).join("");
    const address = target.includes("?") || target.includes("'") ? quoted(last + target) : last + target;
    const start = ["curl", ...first.reverse()].join(" ");
    return `${start}${method} ${address}${more}${said}${body === undefined ? "" : ` \\\n  -d ${quoted(compact(body))}`}`;
  }

  async submit(event) {
    event.preventDefault();
    const { target, headers, body } = this.request();
    if (this.token()) headers.Authorization = `Bearer ${this.token()}`;
    this.aborter = new AbortController();
    this.send.disabled = true;
    this.stop.disabled = false;
    this.answer.replaceChildren(make("p", { class: "quiet" }, "Waiting for the answer …"));
    const began = performance.now();
    try {
      const response = await fetch(target, { method: this.method, headers, body, signal: this.aborter.signal, cache: "no-store" });
      await this.tell(response, began);
    } catch (error) {
      const text = error.name === "AbortError" ? "Stopped." : `There was no answer: ${error.message}`;
      this.answer.append(make("p", { class: "status bad" }, text));
    } finally {
      this.send.disabled = false;
      this.stop.disabled = true;
    }
  }

  async tell(response, began) {
    const timing = make("span", { class: "quiet" });
    const body = make("pre", { tabindex: "0", "aria-label": "Body of the answer" });
    const lines = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
    this.answer.replaceChildren(
      make("h3", {}, "Answer"),
      make("p", {}, make("span", { class: `status ${response.ok ? "good" : "bad"}` }, `${response.status} ${response.statusText}`), " ", timing),
      make("details", { class: "part" }, make("summary", {}, "Headers"), make("pre", {}, lines)),
      body);
    const media = response.headers.get("content-type") ?? "";
    let text = "", length = 0;
    const decoder = new TextDecoder();
    const reader = response.body?.getReader();
    // As it comes: an answer may be a stream that never ends.
    for (let piece; reader && !(piece = await reader.read()).done; ) {
      length += piece.value.length;
      if (text.length < MOST_SHOWN) text += decoder.decode(piece.value, { stream: true });
      if (!media.includes("json")) body.textContent = text;
      timing.textContent = told(began, length);
    }
    timing.textContent = told(began, length);
    body.textContent = (media.includes("json") ? pretty(text) : text) || "(empty)";
    if (text.length >= MOST_SHOWN) body.append("\n… and more");
  }
}

function told(began, length) {
  return `${(performance.now() - began).toFixed(0)} ms · ${length.toLocaleString("en")} bytes`;
}

// Slashes are parts of some names, and of no others.
function escaped(value) {
  return value.split("/").map(encodeURIComponent).join("/").replaceAll("%3A", ":");
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function compact(text) {
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return text;
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
