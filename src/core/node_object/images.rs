//! The images that the node's status lists, by which the scheduler prefers nodes that have a pod's image.
//!
//! Layer L1, pure.

use crate::api::runtime::Image;
use crate::api::v1::ContainerImage;
use crate::util::order;

/// How many names of one image are told.
const MAX_NAMES: usize = 5;

/// The largest images first, at most `max` (`nodeStatusMaxImages`; negative for all). The order is the
/// same for the same images, so that a list in another order is no news.
pub fn status_images(mut images: Vec<Image>, max: i32) -> Vec<ContainerImage> {
    order::sort_by(&mut images, |a, b| b.size.cmp(&a.size).then_with(|| b.id.cmp(&a.id)));
    if let Ok(max) = usize::try_from(max) {
        images.truncate(max);
    }
    let told = |image: Image| {
        let mut names: Vec<String> = image.repo_digests;
        names.extend(image.repo_tags);
        names.truncate(MAX_NAMES);
        ContainerImage {
            names: Some(names).filter(|names| !names.is_empty()),
            size_bytes: Some(i64::try_from(image.size).unwrap_or(i64::MAX)).filter(|size| *size > 0),
        }
    };
    images.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, size: u64, digests: &[&str], tags: &[&str]) -> Image {
        let owned = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        Image { id: id.to_owned(), size, repo_digests: owned(digests), repo_tags: owned(tags), ..Image::default() }
    }

    fn check(max: i32, expect: &[&str]) {
        let images = vec![
            image("a", 5, &["x@1"], &["x:1", "x:2", "x:3", "x:4", "x:5"]),
            image("b", 7, &[], &["y:1"]),
            image("c", 5, &[], &[]),
            image("d", 0, &[], &["z:1"]),
        ];
        let told = status_images(images, max);
        let line = |image: ContainerImage| {
            format!("{} {}", image.size_bytes.unwrap_or(0), image.names.unwrap_or_default().join(","))
        };
        assert_eq!(told.into_iter().map(line).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn the_largest_come_first_with_at_most_five_names() {
        check(-1, &["7 y:1", "5 ", "5 x@1,x:1,x:2,x:3,x:4", "0 z:1"]);
        check(2, &["7 y:1", "5 "]);
        check(0, &[]);
    }
}
