// All tests that need a browser, in one process with one server.

import "./page.mjs";
import "./answers.mjs";
import "./arguments.mjs";
import "./looks.mjs";
