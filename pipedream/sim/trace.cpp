#include "pipedream/sim/trace.hpp"
