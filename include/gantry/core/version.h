// The version of Gantry. The build reads it from this file.
#pragma once

#define GANTRY_VERSION "0.1.0"
