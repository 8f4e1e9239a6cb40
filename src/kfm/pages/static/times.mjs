// The server tells moments in UTC; here they are told in the viewer's zone, with UTC on hover.
const told = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short",
});

export function times(within) {
  for (const element of within.querySelectorAll("time[datetime]")) {
    const moment = new Date(element.dateTime);
    if (!element.dateTime.includes("T") || Number.isNaN(moment.valueOf())) continue;
    element.title = moment.toISOString().replace("T", " ").replace(/(\.\d+)?Z$/, " UTC");
    element.textContent = told.format(moment);
  }
}
