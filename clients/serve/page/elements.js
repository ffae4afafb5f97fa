// Elements of the document, and how numbers look in them.

export const at = (id) => document.getElementById(id);
export const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
