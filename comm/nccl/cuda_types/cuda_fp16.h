// nccl.h includes it and uses nothing of it: NCCL's data types are an enumeration of its own.
#pragma once
