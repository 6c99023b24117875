/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A text that is built in a buffer. */
#ifndef PVN_TOPO_HOSTS_TEXT_H
#define PVN_TOPO_HOSTS_TEXT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_topo_text {
    char *out; /* ends with a 0; the caller has set the first byte to 0 */
    size_t len, cap;
};

/* Appends. A text that does not fit is cut and ends with "...". */
void pvn_topo_text_put(struct pvn_topo_text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif
