# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/docs/: tests of the pages for users, which are the same in every tree.
if TOOLS
PVN_SCRIPT_TESTS += tests/docs/test_pages.sh tests/docs/nccl_variables.sh
endif
dist_noinst_DATA += tests/docs/pages.py tests/docs/form.py tests/docs/messages.py tests/docs/names.py tests/docs/nccl_variables.py \
    tests/docs/nccl-variables.txt
