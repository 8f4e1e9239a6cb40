// What every page has: copying, the theme, times in the viewer's zone, grids and single keys.
// Every page reads and works without it.
import { copying } from "./copy.mjs";
import { theme } from "./theme.mjs";
import { times } from "./times.mjs";
import { grids } from "./grid.mjs";
import { keys } from "./keys.mjs";

copying();
theme();
times(document);
grids();
keys();
