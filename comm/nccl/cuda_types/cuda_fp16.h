// nccl.h includes this file and uses nothing of it: NCCL's data types are its own enumeration.
#pragma once
