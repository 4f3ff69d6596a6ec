// The files of trainer/report/page, as the build puts them into the program.
#pragma once

namespace gantry {

extern const char* const kPageHtml;    // with the marks @@TITLE@@, @@STYLE@@, @@DATA@@ and @@SCRIPT@@
extern const char* const kPageStyle;   // page.css
extern const char* const kPageScript;  // the .js files, one after the other

}  // namespace gantry
