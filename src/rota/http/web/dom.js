// Elements, made of text only: what comes from the document or from an answer is never read as HTML.

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(key, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

// A sentence with `code` in it.
export function words(text) {
  return text.split("`").map((part, n) => (n % 2 ? make("code", {}, part) : part));
}

// Paragraphs, and lists whose items begin with a dash.
export function prose(text) {
  return text.split("\n\n").map((part) => {
    if (!part.startsWith("- ")) return make("p", { class: "words" }, words(part.replaceAll("\n", " ")));
    const items = part.slice(2).split("\n- ");
    return make("ul", { class: "words" }, items.map((item) => make("li", {}, words(item.replaceAll(/\n\s*/g, " ")))));
  });
}

export function copyButton(text) {
  const button = make("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it by hand";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}
