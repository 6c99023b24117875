/* Counters that run on for ever end somewhere: lets a test begin shortly before. */
#ifndef PVN_TESTS_RDMA_WRAP_H
#define PVN_TESTS_RDMA_WRAP_H

#include "core/engine.h"

/* Of an engine on one RDMA lane that writes, neither used yet: as if so many messages, and chunks
 * of each queue pair, had gone. The same at both ends. */
void wrap_start_at(struct pvn_engine *e, uint64_t messages, uint32_t chunks);

#endif
