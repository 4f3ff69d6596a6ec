// The one header that a user includes.
#pragma once

#include "gantry/booster/booster.h"
#include "gantry/booster/initialize.h"
#include "gantry/booster/plugin_library.h"
#include "gantry/booster/recipe.h"
#include "gantry/comm/autograd_collectives.h"
#include "gantry/comm/launch.h"
#include "gantry/core/config.h"
#include "gantry/core/error.h"
#include "gantry/models/bert.h"
#include "gantry/models/gpt2.h"
#include "gantry/models/llama.h"
#include "gantry/plugins/fused_adamw.h"
#include "gantry/plugins/hybrid_parallel_plugin.h"
#include "gantry/tensors/deferred_init.h"
