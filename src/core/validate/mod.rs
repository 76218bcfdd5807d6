//! The checks that an API server would have made on a pod. Pure.
