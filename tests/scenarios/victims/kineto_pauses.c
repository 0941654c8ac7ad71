// SPDX-License-Identifier: Apache-2.0
// link: -Wl,--no-as-needed -lcupti -lcudart -lcuda
// kineto_cupti with pauses three times as long: time for another client of CUPTI to come back
// between the profiles.
//
// usage: kineto_pauses [KERNELS] [PROFILES] [HOW], as kineto_cupti.
#include <unistd.h>
#define usleep(us) (usleep)((us) * 3)
#include "kineto_cupti.c"
