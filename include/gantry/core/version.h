// The version of Gantry, which the build reads from here.
#pragma once

#define GANTRY_VERSION "0.1.0"
