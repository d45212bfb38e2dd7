// Counts frames, and tasks of more than 50 ms that delay them, from the call on.
(() => {
  let last = performance.now(), frames = 0, over = 0, longest = 0, stalls = 0, stalled = 0, morphs = 0;
  const frame = (now) => {
    frames++;
    longest = Math.max(longest, now - last);
    if (now - last > 50) over++;
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame((now) => { last = now; requestAnimationFrame(frame); });
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      stalls++;
      stalled = Math.max(stalled, entry.duration);
    }
  }).observe({ type: "longtask" });
  const morph = Idiomorph.morph;
  Idiomorph.morph = (...all) => { morphs++; return morph(...all); };
  window.figures = () => ({ frames, morphs, over50ms: over, "longest-frame-ms": longest, stalls, "longest-stall-ms": stalled });
  return 0;
})()
