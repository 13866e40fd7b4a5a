// The two halves of the page, of which one is in use: speaking a text, and talking to the agent.

/** Whether it is the one with the agent. */
export const talking = () => document.getElementById("half-talk").checked;

/** Have `listener` called when the other half is chosen. */
export function onChange(listener) {
  document.getElementById("halves").addEventListener("change", listener);
}
