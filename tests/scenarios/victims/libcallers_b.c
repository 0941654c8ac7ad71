// SPDX-License-Identifier: Apache-2.0
// link: -O2 -fomit-frame-pointer -fcf-protection=none -lcudart -lcuda
// The other plugin: see libcallers_a.c.
#define NUMBER 1002
#define FUNCTION function_1002
#include "libcallers_a.c"
