// Bars with a title, a label and a number each.

/**
 * @param {string} title what is measured
 * @param {{label: string, value: number}[]} bars
 * @returns {HTMLElement}
 */
export function createChart(title, bars) {
  const table = document.createElement("table");
  table.className = "paceline-chart";
  table.createCaption().textContent = title;
  const longest = Math.max(...bars.map((bar) => bar.value), 0);
  for (const { label, value } of bars) {
    const row = table.insertRow();
    const name = document.createElement("th");
    name.scope = "row";
    name.textContent = label;
    const bar = document.createElement("div");
    bar.className = "paceline-chart-bar";
    bar.style.width = `${longest ? (100 * value) / longest : 0}%`;
    row.append(name);
    row.insertCell().append(bar);
    row.insertCell().textContent = value >= 100 ? value.toFixed(0) : value.toPrecision(3);
  }
  return table;
}
