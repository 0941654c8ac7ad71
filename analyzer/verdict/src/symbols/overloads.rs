// SPDX-License-Identifier: Apache-2.0
//! Names of PyTorch's operators from those of its functions: `at::_ops::add_Tensor` is the overload
//! `Tensor` of `aten::add`, `at::_ops::max_pool2d_with_indices` the only one of its name.

/// The operator of a function of `at::_ops`, with its namespace.
pub(super) fn operator(function: &str) -> String {
    format!("aten::{}", base(function))
}

fn base(function: &str) -> &str {
    let whole = |name: &str| WHOLE.split_whitespace().any(|w| w == name);
    let bases = || {
        let known = |overload: &str| OVERLOADS.split_whitespace().any(|o| o == overload);
        let at = function.match_indices('_').map(|(at, _)| function.split_at(at));
        at.filter(move |(base, rest)| !base.is_empty() && rest.strip_prefix('_').is_some_and(known))
            .map(|(base, _)| base)
    };
    if whole(function) {
        return function;
    }
    bases().find(|base| whole(base)).or_else(|| bases().next()).unwrap_or(function)
}

/// Names of overloads in `native_functions.yaml` of PyTorch 1.13 and 2.15.
const OVERLOADS: &str = "\
    Dimname DimnameList DimnameList_out Dimname_Scalar Dimname_Tensor Dimname_out IntList \
    IntList_out KN L List List_out OutScalar_Other OutScalar_Self OutTensor Q Scalar \
    ScalarAndTensor ScalarList ScalarList_out ScalarOpt_dim ScalarOpt_dim_dtype \
    ScalarOpt_dim_dtype_out ScalarOpt_dtype ScalarOpt_dtype_out ScalarOther ScalarSelf \
    Scalar_Other Scalar_Scalar Scalar_Self Scalar_Tensor Scalar_Tensor_out Scalar_mode \
    Scalar_mode_out Scalar_out Sequence Tensor TensorList_bins Tensor_Scalar Tensor_Scalar_out \
    Tensor_Tensor Tensor_Tensor_out Tensor_float Tensor_float_out Tensor_generator \
    Tensor_generator_out Tensor_mode Tensor_out U X a all_out array atol_rtol_float \
    atol_rtol_float_out atol_rtol_tensor atol_rtol_tensor_out b beta beta_out bin_ct bin_ct_out \
    bins_tensor bins_tensor_out ccol_row_value ccol_row_value_size center comp_plain_value \
    comp_plain_value_size correction correction_names correction_names_out correction_out \
    crow_col_value crow_col_value_size data decimals decimals_out deprecated device dim \
    dim_Dimname dim_DimnameList dim_IntList dim_IntList_out dim_dtype dim_dtype_out dim_int \
    dim_max dim_min dim_out dim_values dimname dimname_out dimname_src dimname_stable \
    dimname_value dimname_values dimname_values_stable dims dims_out dtype dtype_layout \
    dtype_out dx e eigenvalues eigvals ellipsis_idx float float_Tensor float_Tensor_out \
    float_float float_float_out float_out from from_out fullcoverage fullcoverage_out generator \
    generator_out generator_with_names grad_input indexing indices indices_size input int \
    int_Scalar int_Scalar_out int_Tensor int_Tensor_out int_bins int_out intlist inverse low \
    low_dtype low_dtype_out low_generator low_generator_dtype low_generator_dtype_out \
    low_generator_out low_out m m_out memory_format msg n_scalar n_scalar_out named_out_dim \
    names names_ScalarOpt_dim names_ScalarOpt_dim_dtype names_dim names_dim_max names_dim_min \
    names_dim_values names_dtype_out names_out no_stats no_stats_out ntonly ord_str ord_str_out \
    other other_scalar other_scalar_out out out_ out_mode out_rcond_tensor out_tol_tensor output \
    output_mask output_mask_out p p_str p_str_out padding padding_idx periodic periodic_alpha \
    periodic_alpha_beta periodic_alpha_beta_out periodic_alpha_out periodic_out quantized \
    rcond_tensor reduce reduce_out result scalar scalar_out scalararray scalarint scalarrayarray \
    scalarrayint sections self self_Tensor self_int self_out self_scalar self_scalar_out sign \
    size size_out sizes source_Storage source_Storage_out source_Storage_storage_offset \
    source_Storage_storage_offset_out source_Tensor source_Tensor_out \
    source_Tensor_storage_offset sparse_dim sparse_dim_out src src_out stable stable_out start \
    start_out start_step step str_ord str_ord_out tensor_indices_or_sections tensor_lr \
    tensor_lr_out tensor_qparams tensor_qparams_out tensorarray tensorarrayint tensors \
    tensors_out to to_out tol_tensor two two_out unary_out using_ints using_names value \
    value_out value_reduce value_reduce_out values values_stable vec vec_out x x_scalar \
    x_scalar_out";

/// Operators whose names end as if in one of these. With them the 3,251 of both files come out
/// right.
const WHOLE: &str = "\
    _add_batch_dim _assert_scalar _copy_from _cufft_get_plan_cache_max_size \
    _cufft_get_plan_cache_size _cufft_set_plan_cache_max_size _empty_affine_quantized \
    _empty_per_channel_affine_quantized \
    _fake_quantize_per_tensor_affine_cachemask_tensor_qparams _foreach_sign \
    _functional_assert_scalar _functional_sym_constrain_range_for_size \
    _histogramdd_from_bin_tensors _linalg_eigvals _log_softmax_backward_data _nested_get_values \
    _nested_tensor_size _propagate_xla_data _remove_batch_dim _resize_output \
    _softmax_backward_data _sparse_broadcast_to _sparse_compressed_tensor_with_dims \
    _sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors \
    _sparse_log_softmax_backward_data _sparse_softmax_backward_data \
    _test_optional_filled_intlist _test_optional_intlist _validate_compressed_sparse_indices \
    affine_grid_generator align_tensors align_to batch_norm_backward_reduce broadcast_tensors \
    broadcast_to ccol_indices cholesky_inverse col_indices crow_indices \
    cudnn_affine_grid_generator dense_dim empty_quantized flatten_dense_tensors get_device \
    index_reduce is_same_size is_set_to linalg_eigvals max_pool1d_with_indices \
    max_pool2d_with_indices max_pool3d_with_indices mkldnn_linear_backward_input norm_except_dim \
    refine_names row_indices segment_reduce set_data slice_inverse sparse_dim \
    special_legendre_polynomial_p split_with_sizes sum_to_size sym_constrain_range_for_size \
    take_along_dim tril_indices triu_indices unflatten_dense_tensors unique_dim \
    unsafe_split_with_sizes";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overload_is_no_part_of_the_name() {
        for (function, name) in [
            ("linear", "aten::linear"),
            ("add_Tensor", "aten::add"),
            ("add__Tensor", "aten::add_"),
            ("copy_", "aten::copy_"),
            ("sum_dim_IntList", "aten::sum"),
            ("mm_out", "aten::mm"),
            ("max_pool2d_with_indices", "aten::max_pool2d_with_indices"),
            ("max_pool2d_with_indices_out", "aten::max_pool2d_with_indices"),
            ("split_with_sizes", "aten::split_with_sizes"),
            ("_foreach_add__List", "aten::_foreach_add_"),
            ("__and___Tensor", "aten::__and__"),
            ("one_that_is_new", "aten::one_that_is_new"),
            ("", "aten::"),
        ] {
            assert_eq!(operator(function), name);
        }
    }
}
