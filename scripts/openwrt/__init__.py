# SPDX-License-Identifier: Apache-2.0
"""OpenWrt packages without an SDK: what is in them, and both formats.

    recipe    the contents of the packages' Makefiles
    contents  every package: its metadata, files and scripts, the input of both formats
    binaries  the programs, cross-compiled
    lmo       translations
    ipk       the format of opkg, its index and signature
    apk       the format of apk-tools 3, its index and signature
    keys      the feed's keys
"""
