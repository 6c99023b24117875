/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: text parsed as a socket address. An accepted address, when printed, parses as the
 * same address. */
#include "config.h"

#include <stdint.h>
#include <string.h>

#include "base/addr.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sockaddr_storage ss, again;
    char text[256], printed[PVN_ADDR_TEXT_LEN];
    struct pvn_err err = PVN_ERR_INIT;

    if (size >= sizeof(text))
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (pvn_addr_parse(text, &ss, &err)) {
        fuzz_require(err.code < 0 && err.reason[0][0], "a refusal has its reason");
        fuzz_require(ss.ss_family == 0, "nothing half-read is left");
        return 0;
    }
    pvn_addr_format((struct sockaddr *)&ss, printed, sizeof(printed));
    fuzz_require(pvn_addr_parse(printed, &again, NULL) == 0, "what is printed is read");
    fuzz_require(pvn_addr_same_host((struct sockaddr *)&ss, (struct sockaddr *)&again),
                 "same host");
    fuzz_require(pvn_addr_port((struct sockaddr *)&ss) == pvn_addr_port((struct sockaddr *)&again),
                 "same port");
    return 0;
}
