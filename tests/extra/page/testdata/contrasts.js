// Returns the texts of a page with less contrast to their background than WCAG level AA requires. Signs are not text and
// require less. Text in SVG and hidden text are skipped.
(() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const draw = (layers) => {
    context.clearRect(0, 0, 1, 1);
    for (const colour of layers) {
      context.fillStyle = colour;
      context.fillRect(0, 0, 1, 1);
    }
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const faint = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.textContent.trim(), element = texts.currentNode.parentElement;
    if (!text || element.closest("svg, noscript, script, [hidden]") || !element.getClientRects().length) continue;
    const layers = [], style = getComputedStyle(element);
    for (let e = element; e; e = e.parentElement) layers.unshift(getComputedStyle(e).backgroundColor);
    const behind = light(draw(["#fff", ...layers])), front = light(draw(["#fff", ...layers, style.color]));
    const contrast = (Math.max(behind, front) + 0.05) / (Math.min(behind, front) + 0.05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) || element.ariaHidden;
    if (contrast < (large ? 3 : 4.5)) faint.push(`${text.slice(0, 40)}: ${contrast.toFixed(2)} (${style.color} in ${element.className || element.tagName})`);
  }
  return faint;
})()
