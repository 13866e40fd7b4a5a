// Time as the page measures and writes it.

/** Seconds since the page was opened. */
export const now_s = () => performance.now() / 1000;

/** A duration for a person: "1.2 s". */
export const seconds = (value, digits = 1) => `${value.toFixed(digits)} s`;
